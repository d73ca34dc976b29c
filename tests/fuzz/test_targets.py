"""Every target with damaged seeds and with any bytes, the same ones in every run.

Longer runs: `python -m tests.fuzz.atheris_run`.
"""

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.all_targets import TARGETS
from tests.fuzz.mutation import mutated
from tests.fuzz.mutation_run import TooMuchMemory, check_memory, run_for
from tests.fuzz.target import Target
from tests.tiers import examples, sample

# Some take a hundred times as long as others.  Sweeps of seeds try most of the twins, too: `test_kernels.py`.
EXAMPLES = {
    "store_start": 40,
    "configuration_file": 60,
    "configuration_update": 60,
    "json_bodies": 100,
    "sessions": 100,
    "auth_files": 60,
    "accounts_reload": 60,
    "tls_properties": 25,
    "tls_files": 25,
    "ack_twins": 40,
    "column_twins": 40,
    "end_twins": 40,
    "guarded_pull_twins": 40,
    "guarded_send_twins": 40,
    "pop_twins": 40,
    "pull_twins": 40,
    "repeated_header_twins": 60,
    "send_twins": 40,
    "timer_twins": 40,
    "turn_twins": 40,
}
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        target.run(seed)
    seeds = st.sampled_from(list(target.seeds))

    @settings(BOUNDED, max_examples=examples(EXAMPLES.get(name, 200)))
    @given(st.binary(max_size=200) | st.builds(damaged, seeds, seeds, st.integers(0, 1 << 32)))
    @example(b"")
    def feed(data: bytes) -> None:
        target.run(data)

    feed()


def damaged(data: bytes, other: bytes, seed: int) -> bytes:
    """`data` with some changes."""
    return mutated(data, random.Random(seed), other)


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded_by_the_input(name: str) -> None:
    target, dice = TARGETS[name], random.Random(7)
    for seed in sample(target.seeds, quick=2):
        check_memory(target, seed)
        check_memory(target, mutated(seed, dice))


def test_the_runner_finds_what_is_wrong() -> None:
    def wrong(data: bytes) -> None:
        if b"\x00" in data:
            raise ValueError

    found = run_for(Target("wrong", wrong, [b"a" * 10]), 0.2, 1)
    assert found.inputs > 10
    assert len(found.findings) == 1
    with pytest.raises(TooMuchMemory):
        check_memory(Target("large", lambda data: bytearray(1 << 20), [b""]), b"x")
