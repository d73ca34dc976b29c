"""Table of receipt handles that the proxy renews, while their clients live; pure.

A client knows the handle that it received.  Each renewal makes a new one, which only this table knows: an
acknowledgement finds it here.  Source: RocketMQ 5.3.3, `ReceiptHandleGroup`, `DefaultReceiptHandleManager`,
`RenewStrategyPolicy`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from proxy.brokers.receipts import Receipt

_MINUTE_MS: Final = 60_000
# Invisible time of each renewal.
RENEWALS_MS: Final = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))


@dataclass(slots=True, eq=False)
class Held:
    """One message that a client works on.  Times are ms since the epoch unless they say otherwise."""

    client_id: str
    group: str
    topic: str
    message_id: str
    given: str  # the handle that the client has
    receipt: Receipt  # the newest
    received_ms: int
    reconsume_times: int
    peer: tuple[str, int] = ("", 0)  # the connection of the receive
    received_at: float = 0.0  # monotonic s
    is_delivered: bool = False  # whether the client has the message for certain
    renewals: int = 0
    failures: int = 0
    renewing: asyncio.Future[None] | None = None  # the renewal under way

    @property
    def next_invisible_ms(self) -> int:
        """Invisible time of the next renewal."""
        return RENEWALS_MS[min(self.renewals, len(RENEWALS_MS) - 1)]

    def is_due(self, now_ms: int, ahead_ms: int) -> bool:
        """Return whether the message becomes visible within `ahead_ms`, and no renewal of it is under way."""
        return self.renewing is None and self.receipt.visible_at_ms - now_ms <= ahead_ms

    def renewed(self, receipt: Receipt) -> None:
        """Record a renewal."""
        self.receipt = receipt
        self.renewals += 1
        self.failures = 0


class HeldHandles:
    """All held handles, by client."""

    def __init__(self) -> None:
        self._of_client: defaultdict[str, dict[tuple[str, str, str], Held]] = defaultdict(dict)
        self._count = 0
        # Called with the id of a client when it gets its first handle.
        self.on_first: list[Callable[[str], None]] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        """Return all handles; those that are taken meanwhile may be among them."""
        for table in list(self._of_client.values()):
            yield from list(table.values())

    def add(self, held: Held) -> None:
        """Hold a handle that a client receives now."""
        table = self._of_client[held.client_id]
        before = len(table)
        if not before:
            for listener in self.on_first:
                listener(held.client_id)
        table[held.group, held.message_id, held.given] = held
        self._count += len(table) - before

    def count_of(self, client_id: str) -> int:
        """Return how many handles a client holds."""
        return len(self._of_client.get(client_id, ()))

    def take(self, client_id: str, group: str, message_id: str, given: str) -> Held | None:
        """Remove the handle that the client names by the one that it has; None if it is not held."""
        table = self._of_client.get(client_id)
        held = None if table is None else table.pop((group, message_id, given), None)
        if held is not None:
            self._count -= 1
            if not table:
                del self._of_client[client_id]
        return held

    def drop(self, held: Held) -> bool:
        """Remove `held`; return whether it was still here."""
        return self.take(held.client_id, held.group, held.message_id, held.given) is held

    def is_held(self, held: Held) -> bool:
        """Return whether `held` is still here."""
        return self._of_client.get(held.client_id, {}).get((held.group, held.message_id, held.given)) is held

    def take_client(self, client_id: str) -> list[Held]:
        """Remove and return everything that a client holds."""
        taken = list(self._of_client.pop(client_id, {}).values())
        self._count -= len(taken)
        return taken
