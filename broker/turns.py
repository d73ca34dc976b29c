"""Work in steps: some in this turn of the event loop, the others in later ones."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

# `loop.call_later`: seconds, callback.
CallLater: TypeAlias = Callable[[float, Callable[[], None]], object]


def run_in_turns(steps: Iterator[object], at_once: int, call_later: CallLater) -> None:
    """Run `at_once` of `steps` now, and as many in each of the next turns of the loop."""
    if sum(1 for _ in islice(steps, at_once)) == at_once:
        call_later(0.0, partial(run_in_turns, steps, at_once, call_later))
