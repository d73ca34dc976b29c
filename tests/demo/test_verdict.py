"""Each check of the demo fails for what it is there to find."""

from dataclasses import replace

import pytest

from examples.demo.analysis import Counts, Findings
from examples.demo.consuming import Received
from examples.demo.sending import Sent
from examples.demo.verdict import CommittedOffset, checks_of
from tests.demo.counts import GOOD_COUNTS


def failed(
    counts: Counts = GOOD_COUNTS, sent: Sent | None = None, offsets: list[CommittedOffset] | None = None
) -> list[str]:
    findings = Findings(counts, [], [("broker-a", 0, counts.records)], [], [])
    received = Received()
    received.add([str(number) for number in range(10)] + ["1", "2", "3"])
    sent = sent or good_send()
    checks = checks_of(10, sent, received, findings, [CommittedOffset(5, 5)] if offsets is None else offsets)
    return [check.what for check in checks if not check.holds]


def good_send() -> Sent:
    return Sent([str(number) for number in range(10)], killed=1.0, recovered=3.0)


def test_a_good_run_has_no_failed_check() -> None:
    assert failed() == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"acknowledged_not_in_log": 1}, "The logs hold"),
        ({"distinct_in_log": 9}, "The logs hold"),
        ({"in_log_not_received": 1}, "Consumers received"),
        ({"in_log_not_acknowledged": 1}, "The logs and the consumers have no message"),
        ({"received_not_in_log": 1}, "The logs and the consumers have no message"),
        ({"received": 12}, "The driver and Spark"),
        ({"records": 99}, "Every message that was stored twice"),
    ],
)
def test_counts_that_do_not_agree(change: dict[str, int], what: str) -> None:
    assert any(name.startswith(what) for name in failed(replace(GOOD_COUNTS, **change)))


def test_what_the_sender_and_the_offsets_show() -> None:
    unsent = good_send()
    unsent.acknowledged.pop()
    assert failed(sent=unsent)[0] == "Every flight was acknowledged"
    lukewarm = good_send()
    lukewarm.not_ok = 1
    assert failed(sent=lukewarm) == ["Every flight was acknowledged"]
    assert failed(sent=replace(good_send(), recovered=None)) == ["The killed broker accepted sends again"]
    assert failed(offsets=[CommittedOffset(4, 5)]) == ["The group committed every queue to its end"]
    assert failed(offsets=[]) == ["The group committed every queue to its end"]
