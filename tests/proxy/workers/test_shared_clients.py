"""Two workers and two accounts that use one client id: what one account does at a worker harms no client of the other.

Worker 2 heard of the id from Mallory before Alice's client connected to worker 1.
"""

from typing import Any, cast

import pytest

from proxy.brokers.receipts import Receipt
from proxy.clients.registry import Clients
from proxy.clients.telemetry_stream import TelemetryStream
from proxy.handles.held_handles import Held, HeldHandles
from proxy.workers.link import Link, Message
from proxy.workers.shared_clients import SharedClients
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle
from tests.proxy.rig import consumer_settings

_ID = "one-id"
_SILENT_S = 120.0


class _Line:
    """Line to the other worker, which takes each message at once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.other: SharedClients | None = None

    def send(self, kind: str, *, to: int | None = None, **fields: Any) -> None:
        assert self.other is not None
        self.other.take({"kind": kind, "from": self.number, **fields})


class _Worker:
    def __init__(self, number: int, now: list[float]) -> None:
        self.clients = Clients(lambda: now[0], silent_s=_SILENT_S, lost_s=_SILENT_S)
        self.held = HeldHandles()
        self.line = _Line(number)
        self.shared = SharedClients(
            self._opened, lambda: None, self.clients, self.held, lambda: now[0], lambda *_: None
        )  # fmt: skip

    async def _opened(self) -> Link:
        return cast("Link", self.line)


class _Pair:
    """Workers 1 and 2; `now` is their clock, monotonic s."""

    def __init__(self) -> None:
        self.now = [0.0]
        self.first, self.second = _Worker(1, self.now), _Worker(2, self.now)

    async def open(self) -> None:
        self.first.line.other, self.second.line.other = self.second.shared, self.first.shared
        await self.first.shared.open()
        await self.second.shared.open()

    def report(self, worker: _Worker, account: str | None) -> None:
        stream = TelemetryStream(_ID, _nowhere, lambda: None, 1.0)
        worker.clients.report(_ID, consumer_settings("topic", "group"), stream, account)


async def _nowhere(command: Any) -> None: ...


def _held() -> Held:
    receipt = Receipt(PopHandle(0, 0, 60_000, 0, NORMAL, "broker-a", 0, 0), 0)
    return Held(_ID, "group", "topic", "message", "given", receipt, 0, 0)


@pytest.fixture
async def pair() -> _Pair:
    made = _Pair()
    await made.open()
    made.second.clients.seen(_ID, "mallory")
    made.report(made.first, "alice")
    return made


async def test_the_end_of_another_accounts_client_ends_no_client(pair: _Pair) -> None:
    pair.second.clients.end(_ID)
    found = pair.first.clients.get(_ID)
    assert found is not None and found.account == "alice"
    # Her client is told of, and ends, where the id is free now.
    pair.report(pair.first, "alice")
    pair.second.clients.end(_ID)
    assert pair.first.clients.get(_ID) is None


async def test_calls_of_another_account_keep_no_client_alive(pair: _Pair) -> None:
    found = pair.first.clients.get(_ID)
    assert found is not None
    pair.now[0] = _SILENT_S
    for account, seen_at in (("mallory", 0.0), ("alice", _SILENT_S)):
        alive: Message = {"kind": "alive", "from": 2, "clients": [[_ID, account]]}
        pair.first.shared.take(alive)
        assert found.seen_at == seen_at
    pair.now[0] *= 2
    pair.second.held.add(_held())  # Mallory's: says so with her account
    assert found.seen_at == _SILENT_S


async def test_a_handle_is_given_to_its_own_account_alone(pair: _Pair) -> None:
    held = _held()
    pair.first.held.add(held)
    names = _ID, "group", "message", "given"
    assert await pair.second.shared.held_elsewhere(*names) is None
    assert pair.first.held.is_held(held)
    pair.second.clients.remove(_ID)
    pair.report(pair.first, "alice")
    pair.first.shared.take({"kind": "joined", "from": 2})
    taken = await pair.second.shared.held_elsewhere(*names)
    assert taken is not None and taken.given == "given" and not pair.first.held.is_held(held)
