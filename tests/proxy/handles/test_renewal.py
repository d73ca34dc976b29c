"""Renewals of many messages: the loop serves others meanwhile, and a message that is acknowledged is left alone."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import cast

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt
from proxy.clients.connections import Connections
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.handles.held_handles import Held, HeldHandles
from proxy.handles.renewal import Renewal
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle
from tests.clock import ManualClock

_MESSAGES = 5000
_INVISIBLE_MS = 60_000
_PEER = ("10.0.0.1", 4711)


class _Brokers(Brokers):
    """Brokers that change each invisible time; `changed` has the queue offsets."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(cast("ClientInstance", SimpleNamespace(clock=clock)))
        self.changed: list[int] = []

    async def change_invisible(
        self, receipt: Receipt, group: str, topic: str, invisible_ms: int, *, suspend: bool = False
    ) -> Receipt:
        self.changed.append(receipt.offset)
        return receipt.renewed(self.instance.clock.wall_ms(), invisible_ms, 0)


class _Rig:
    """A proxy's renewal of `_MESSAGES` messages of one client, which has them for certain."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = _Brokers(self.clock)
        self.connections = Connections(self.clock.monotonic)
        self.tasks: list[asyncio.Task[None]] = []
        config, metadata = ProxyConfig(), cast("Metadata", None)
        clients = Clients(self.clock.monotonic, silent_s=1, lost_s=1)
        self.renewal = Renewal(HeldHandles(), self.brokers, metadata, config, self.connections, clients, self._spawn)
        for offset in range(_MESSAGES):
            popped_ms = self.clock.wall_ms()
            receipt = Receipt(PopHandle(offset, popped_ms, _INVISIBLE_MS, 0, NORMAL, "broker-a", 0, offset), 0)
            self.renewal.held.add(Held(
                "client", "group", "topic", str(offset), receipt.encode(), receipt, popped_ms, 0, _PEER,
                self.clock.monotonic(), is_delivered=True,
            ))  # fmt: skip

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)


async def test_nothing_is_asked_before_a_message_is_due() -> None:
    rig = _Rig()
    await rig.renewal.renew_due()
    assert not rig.tasks


async def test_others_have_turns_while_many_messages_are_looked_at() -> None:
    rig, turns = _Rig(), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(others())
    await rig.renewal.renew_due()
    other.cancel()
    assert turns >= 4


async def test_every_message_that_is_due_is_renewed_once() -> None:
    rig = _Rig()
    rig.clock.advance(_INVISIBLE_MS / 1000 - 1)
    for _ in range(2):
        await rig.renewal.renew_due()
    await rig.settle()
    assert sorted(rig.brokers.changed) == list(range(_MESSAGES))


async def test_message_that_is_acknowledged_meanwhile_is_not_renewed() -> None:
    rig = _Rig()
    rig.clock.advance(_INVISIBLE_MS / 1000 - 1)
    looking = asyncio.ensure_future(rig.renewal.renew_due())
    await asyncio.sleep(0)
    last = str(_MESSAGES - 1)
    given = next(held.given for held in rig.renewal.held if held.message_id == last)
    assert (await rig.renewal.take("client", "group", last, given))[1] is not None
    await looking
    await rig.settle()
    assert _MESSAGES - 1 not in rig.brokers.changed and len(rig.brokers.changed) == _MESSAGES - 1
