"""Seeds in a row, for the soaks of the simulations: totals, problems, and when to stop."""

import argparse
import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class Outcome(Protocol):
    """What one seed showed: problems, kinds of faults and of answers with their counts, and what gives it again."""

    @property
    def problems(self) -> list[str]: ...

    @property
    def faults(self) -> Mapping[str, int]: ...

    @property
    def answers(self) -> Mapping[str, int]: ...

    def report(self) -> str:
        """Everything that is needed to see it again."""
        ...


def options(program: str, *, every: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every soak; `every` is the default count of seeds between two lines."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--max-problems", type=int, default=20, help="stop after so many seeds that failed")
    parser.add_argument("--every", type=int, default=every, help="print a line after so many seeds")
    return parser


def play_all(
    arguments: argparse.Namespace,
    play: Callable[[int], Outcome],
    figures: Iterable[str],
    *,
    prints_all: bool = False,
) -> int:
    """Play the seeds that `arguments` names, and print what failed and the totals.

    `figures` are the names of an outcome's counts to add up.  Returns 1 if anything was found, otherwise 0.
    """
    names = tuple(figures)
    logging.disable(logging.CRITICAL)
    # Collections between seeds, not inside them: a simulation makes many cycles and ends soon.
    gc.disable()
    began_s, played, failed = time.monotonic(), 0, 0
    totals: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = play(seed)
        played += 1
        totals.update({name: getattr(outcome, name) for name in names})
        totals.update({f"fault {kind}": count for kind, count in outcome.faults.items()})
        totals.update({f"answer {kind}": count for kind, count in outcome.answers.items()})
        if outcome.problems or prints_all:
            print(outcome.report(), flush=True)
        failed += bool(outcome.problems)
        if failed >= arguments.max_problems:
            break
        if played % 20 == 0:
            gc.collect()
        if played % arguments.every == 0:
            print(f"seeds={played} failed={failed} seconds={time.monotonic() - began_s:.0f}", flush=True)
    print(f"seeds={played} first={arguments.first} failed={failed} seconds={time.monotonic() - began_s:.0f}")
    print(dict(sorted(totals.items())))
    return 1 if failed else 0
