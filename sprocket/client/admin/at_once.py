"""Requests to many servers at once, with a bound on their number."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from sprocket.client.admin.admin_requests import AdminDenied, AdminError
from sprocket.common.errors import ClientError

K = TypeVar("K")
T = TypeVar("T")
# What each server answered, or why there is no answer.
Outcomes = dict[K, T | AdminError]


class AtOnce:
    """Runner of requests, at most `max_requests` at a time."""

    def __init__(self, max_requests: int) -> None:
        self._free = asyncio.Semaphore(max_requests)

    async def each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> Outcomes[K, T]:
        """Return the outcome of `ask` for each key.  One failure changes no other outcome."""

        async def outcome(key: K) -> T | AdminError:
            async with self._free:
                try:
                    return await ask(key)
                except AdminError as error:
                    return error
                except ClientError as error:
                    return AdminError(str(error))

        ordered = list(dict.fromkeys(keys))
        return dict(zip(ordered, await asyncio.gather(*map(outcome, ordered)), strict=True))


def answered(outcomes: Outcomes[K, T]) -> dict[K, T]:
    """Return the answers without the failures."""
    return {key: value for key, value in outcomes.items() if not isinstance(value, AdminError)}


def failures(outcomes: Outcomes[K, T]) -> dict[K, AdminError]:
    """Return the failures without the answers."""
    return {key: value for key, value in outcomes.items() if isinstance(value, AdminError)}


def check_rights(outcomes: Outcomes[K, T]) -> None:
    """Raise AdminDenied if no server answered and access control refused at least one request."""
    refused = next((one for one in outcomes.values() if isinstance(one, AdminDenied)), None)
    if refused is not None and not answered(outcomes):
        raise refused


def check_all(outcomes: Outcomes[K, T]) -> None:
    """Raise AdminError if there is a failure: it has the text of the first one and the number of the others."""
    failed = failures(outcomes)
    for key, error in failed.items():
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise AdminError(f"{key}: {error}{others}", error.code)
