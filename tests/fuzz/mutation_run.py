"""Feeds a target with mutated seeds for a while, without a fuzzer that has to be installed."""

import random
import time
import traceback
import tracemalloc
from dataclasses import dataclass, field

from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target

# What any decoder may take, however little it is given.
_FREE_BYTES = 512 * 1024
_MOST_INPUT_BYTES = 64 * 1024
_MOST_KEPT = 400


class TooMuchMemory(AssertionError):
    """A decoder took more memory than its target allows."""


@dataclass
class Run:
    """What came of it; `findings` has one input for each place of the code that failed."""

    inputs: int = 0
    peak_ratio: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)


def check_memory(target: Target, data: bytes) -> float:
    """Run `target` and return how many bytes it took for each byte given.  Raises TooMuchMemory."""
    target.run(data)  # the first run may import modules, whose memory does not grow with the input
    tracemalloc.start()
    try:
        target.run(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > _FREE_BYTES + target.bytes_per_byte * len(data):
        raise TooMuchMemory(f"{target.name} took {peak} bytes for {len(data)}")
    return peak / max(1, len(data))


def run_for(target: Target, seconds: float, seed: int, *, memory_every: int = 50) -> Run:
    """Feed mutated seeds, and mutated results of those, for `seconds`."""
    dice, run = random.Random(seed), Run()
    pool = list(target.seeds)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(dice.choice(pool), dice, dice.choice(pool))[:_MOST_INPUT_BYTES]
        _one(target, data, run, with_memory=run.inputs % memory_every == 0)
        if dice.random() < 0.02:
            # Damage upon damage: some of what was made is damaged further.
            if len(pool) >= _MOST_KEPT:
                pool[dice.randrange(len(target.seeds), len(pool))] = data
            else:
                pool.append(data)
    return run


def _one(target: Target, data: bytes, run: Run, *, with_memory: bool) -> None:
    run.inputs += 1
    try:
        if with_memory:
            run.peak_ratio = max(run.peak_ratio, check_memory(target, data))
        else:
            target.run(data)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        run.findings.setdefault(f"{type(error).__name__} at {place.filename}:{place.lineno}", data)
