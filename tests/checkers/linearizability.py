"""Whether a history of concurrent calls is linearizable: one order of the calls explains all answers.

The order must respect time: a call that returned before another was made comes before it.  A call whose outcome is
unknown may have taken effect at any time after it was made, or never.
Source: Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with the cache of visited configurations of
Lowe, "Testing for linearizability" (2017).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, TypeVar

State = TypeVar("State", bound=Hashable)
# Above this number of visited configurations a history counts as undecided.
_MAX_VISITED: Final = 2_000_000


class Undecided(Exception):
    """The history has too many concurrent calls to be judged."""


@dataclass(frozen=True)
class Call:
    """One call: when it was made, when it returned, what was asked and answered.

    `returned` is infinite for a call whose outcome is unknown; its `answer` is then ignored.
    """

    made: float
    returned: float
    asked: Any
    answer: Any = None

    @property
    def is_unknown(self) -> bool:
        return self.returned == inf


# (state, call) -> the states after the call if its answer may come from `state`; none if it may not.
# For a call whose outcome is unknown: the states after it, whatever the answer.
Step = Callable[[State, Call], Iterable[State]]


@dataclass(frozen=True)
class Verdict(Generic[State]):
    """Result: `order` explains a linearizable history; else it is the longest order that was found."""

    is_linearizable: bool
    order: Sequence[Call]

    def __bool__(self) -> bool:
        return self.is_linearizable


def check(history: Iterable[Call], initial: State, step: Step[State]) -> Verdict[State]:
    """Return whether `history` is linearizable.  Raises Undecided if that takes too long."""
    calls = sorted(history, key=lambda call: (call.made, call.returned))
    known = sum(1 << at for at, call in enumerate(calls) if not call.is_unknown)
    visited: set[tuple[int, State]] = {(0, initial)}
    # Configurations to go on from: which calls are done, the state after them, and their order as a linked list.
    stack: list[tuple[int, State, _Link]] = [(0, initial, None)]
    longest: _Link = None
    while stack:
        done, state, order = stack.pop()
        if _length(order) > _length(longest):
            longest = order
        if done & known == known:
            return Verdict(True, _listed(order))
        for at in _next(calls, done):
            for after in step(state, calls[at]):
                if after == state and calls[at].is_unknown:
                    continue  # the same as never
                configuration = done | 1 << at, after
                if configuration not in visited:
                    if len(visited) >= _MAX_VISITED:
                        raise Undecided(f"{len(calls)} calls, {len(visited)} configurations")
                    visited.add(configuration)
                    stack.append((*configuration, (_length(order) + 1, calls[at], order)))
    return Verdict(False, _listed(longest))


# (number of calls, last call, calls before it)
_Link = tuple[int, Call, "_Link"] | None


def _next(calls: Sequence[Call], done: int) -> list[int]:
    """Return the calls that may come next: made before any other call that is not done returned."""
    open_calls = []
    first_return = inf
    for at, call in enumerate(calls):
        if done >> at & 1:
            continue
        if call.made > first_return:
            break
        open_calls.append(at)
        first_return = min(first_return, call.returned)
    return [at for at in open_calls if calls[at].made <= first_return]


def _length(order: "_Link") -> int:
    return 0 if order is None else order[0]


def _listed(order: "_Link") -> list[Call]:
    calls = []
    while order is not None:
        _, call, order = order
        calls.append(call)
    return calls[::-1]
