"""Questions to all masters of the cluster, and changes at them."""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from dashboard.page import Visit
from sprocket.client.admin.at_once import answered, check_rights, failures

T = TypeVar("T")


class Answers(NamedTuple, Generic[T]):
    """What masters answered, by name: all of them with their addresses, the answers, and the others with why."""

    masters: dict[str, str]
    found: dict[str, T]
    silent: list[tuple[str, str]]


class Changed(NamedTuple):
    """What came of a change: a sentence about the brokers that made it, empty if none did, and the others with why."""

    done: str
    failed: list[tuple[str, str]]


NOTHING = Changed("", [])


async def from_masters(visit: Visit, ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Ask each master, by its address.  Raises AdminDenied if the visitor may not ask any."""
    masters = (await visit.admin.cluster_info()).masters()
    outcomes = await visit.at_once.each(masters, lambda name: ask(masters[name]))
    check_rights(outcomes)
    return Answers(masters, answered(outcomes), [(name, str(error)) for name, error in failures(outcomes).items()])


async def on_masters(visit: Visit, what: str, change: Callable[[str], Awaitable[None]]) -> Changed:
    """Change something at each master; `what` says it.  Raises AdminDenied if the visitor may not do so."""
    answers = await from_masters(visit, change)
    return Changed(f"{what} on {', '.join(sorted(answers.found))}." if answers.found else "", answers.silent)
