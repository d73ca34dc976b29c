"""RocketMQ 5.3.3 itself gives the verdicts that `test_verdicts.py` compares with."""

import pytest

from tests.broker.filter.cases import Generator, our_verdict, reference_verdicts
from tests.broker.filter.test_verdicts import FACTS, case_of
from tests.compat import maven


@pytest.mark.java
def test_rocketmq_says_so_today() -> None:
    cases = [case_of(expression, properties) for expression, properties, _ in FACTS]
    generator = Generator(5)
    cases += [generator.case() for _ in range(1000)]
    try:
        verdicts = reference_verdicts(cases)
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    wrong = [(case, verdict) for case, verdict in zip(cases, verdicts, strict=True) if our_verdict(case) != verdict]
    assert not wrong
    assert verdicts[: len(FACTS)] == [verdict for _, _, verdict in FACTS]
