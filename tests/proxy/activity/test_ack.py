"""Acknowledgements on their way to brokers: one alone costs no task, several wait for their answers together."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.activity.ack import AckActivity
from proxy.brokers.brokers import Brokers
from proxy.brokers.caller_connections import Caller
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt
from proxy.clients.connections import Connections
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.handles.held_handles import Held, HeldHandles
from proxy.handles.renewal import Renewal
from proxy.listeners import Listener
from proxy.server.call import Call
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import RemotingTimeout
from sprocket.common.clock import SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message.pop_extra_info import NORMAL, ORDER_REVIVE_QUEUE, PopHandle

_CALL = Call("client", {}, ("127.0.0.1", 1), Listener("default", 1))
_HOUR_MS = 3_600_000
_LIMIT_S = 10


class WaitingBrokers(Brokers):
    """Brokers that answer when `count` requests wait for them; `asked` has the tasks that asked."""

    def __init__(self, count: int) -> None:
        super().__init__(cast("ClientInstance", SimpleNamespace(clock=SystemClock())))
        self._all_here = asyncio.Barrier(count)
        self.asked: list[asyncio.Task[None] | None] = []

    async def ack(self, receipt: Receipt, group: str, topic: str, caller: Caller | None = None) -> None:
        self.asked.append(asyncio.current_task())
        await self._all_here.wait()

    async def ack_batch(self, receipts: Sequence[Receipt], group: str, topic: str, caller: Caller | None) -> None:
        await self.ack(receipts[0], group, topic, caller)


def _activity(brokers: Brokers, held: HeldHandles) -> AckActivity:
    config, clients = ProxyConfig(), Clients(SystemClock().monotonic, silent_s=1, lost_s=1)
    metadata, connections = cast("Metadata", None), cast("Connections", None)  # not asked before a renewal
    renewal = Renewal(held, brokers, metadata, config, connections, clients, asyncio.ensure_future)
    return AckActivity(brokers, clients, renewal, config)


async def _acknowledge(
    brokers: Brokers, receipts: Sequence[Receipt], held: HeldHandles | None = None
) -> wire.AckMessageResponse:
    request = wire.AckMessageRequest(
        group=wire.Resource(name="group"),
        topic=wire.Resource(name="topic"),
        entries=[wire.AckMessageEntry(message_id="id", receipt_handle=receipt.encode()) for receipt in receipts],
    )
    async with asyncio.timeout(_LIMIT_S):
        answer = await _activity(brokers, HeldHandles() if held is None else held).ack_message(_CALL, request)
        return wire.AckMessageResponse.FromString(answer)


def _receipt(broker_name: str, offset: int, revive_queue_id: int = 0) -> Receipt:
    now_ms = SystemClock().wall_ms()
    return Receipt(PopHandle(offset, now_ms, _HOUR_MS, revive_queue_id, NORMAL, broker_name, 0, offset), 0)


async def test_one_acknowledgement_runs_in_the_task_of_its_call() -> None:
    brokers = WaitingBrokers(1)
    answer = await _acknowledge(brokers, [_receipt("broker-a", 1)])
    assert answer.status.code == wire.OK and len(answer.entries) == 1
    assert brokers.asked == [asyncio.current_task()]


@pytest.mark.parametrize(
    "receipts",
    [
        [_receipt("broker-a", 1), _receipt("broker-b", 1)],
        [_receipt("broker-a", 1), _receipt("broker-a", 2), _receipt("broker-b", 1), _receipt("broker-b", 2)],
        [_receipt("broker-a", 1, ORDER_REVIVE_QUEUE), _receipt("broker-a", 2, ORDER_REVIVE_QUEUE)],
    ],
    ids=["of two brokers", "batches of two brokers", "ordered"],
)
async def test_several_wait_for_their_answers_together(receipts: list[Receipt]) -> None:
    brokers = WaitingBrokers(2)
    answer = await _acknowledge(brokers, receipts)
    assert answer.status.code == wire.OK and len(answer.entries) == len(receipts)
    assert len(brokers.asked) == 2


class FailingBrokers(Brokers):
    """Brokers, of which the one named `broken` never answers.  `asked` has the offsets that reached the others."""

    def __init__(self, broken: str) -> None:
        super().__init__(cast("ClientInstance", SimpleNamespace(clock=SystemClock())))
        self._broken = broken
        self.asked: list[int] = []

    async def ack(self, receipt: Receipt, group: str, topic: str, caller: Caller | None = None) -> None:
        await self.ack_batch([receipt], group, topic, caller)

    async def ack_batch(self, receipts: Sequence[Receipt], group: str, topic: str, caller: Caller | None) -> None:
        if any(receipt.handle.broker_name == self._broken for receipt in receipts):
            raise RemotingTimeout(f"{self._broken} did not answer")
        self.asked += [receipt.offset for receipt in receipts]


@pytest.mark.parametrize("of_each", [1, 2], ids=["one", "batch"])
async def test_what_a_broker_did_not_acknowledge_is_no_success(of_each: int) -> None:
    brokers, held = FailingBrokers("broker-b"), HeldHandles()
    receipts = [_receipt(name, offset) for offset in range(of_each) for name in ("broker-a", "broker-b")]
    for one in receipts:
        held.add(Held(_CALL.client_id, "group", "topic", "id", one.encode(), one, SystemClock().wall_ms(), 0))
    answer = await _acknowledge(brokers, receipts, held)
    assert answer.status.code == wire.MULTIPLE_RESULTS
    assert [entry.status.code == wire.OK for entry in answer.entries] == [True, False] * of_each
    assert brokers.asked == list(range(of_each))
    # The client tries again with the handle that it has, so that one is renewed on.
    assert [one.receipt for one in held] == receipts[1::2]


async def test_an_expired_receipt_is_refused_and_the_others_are_acknowledged() -> None:
    brokers = FailingBrokers("")
    past = _receipt("broker-a", 1)
    past = past._replace(handle=past.handle._replace(pop_time_ms=past.handle.pop_time_ms - 2 * _HOUR_MS))
    answer = await _acknowledge(brokers, [past, _receipt("broker-a", 2)])
    assert [entry.status.code for entry in answer.entries] == [wire.INVALID_RECEIPT_HANDLE, wire.OK]
    assert brokers.asked == [2]


async def test_no_acknowledgement_is_no_success() -> None:
    answer = await _acknowledge(WaitingBrokers(1), [])
    assert answer.status.code == wire.INTERNAL_SERVER_ERROR and not answer.entries


async def test_one_that_a_broker_did_not_acknowledge_is_held_again() -> None:
    brokers, held, receipt = FailingBrokers("broker-a"), HeldHandles(), _receipt("broker-a", 1)
    one = Held(_CALL.client_id, "group", "topic", "id", receipt.encode(), receipt, SystemClock().wall_ms(), 0)
    held.add(one)
    answer = await _acknowledge(brokers, [receipt], held)
    assert answer.status.code == answer.entries[0].status.code == wire.PROXY_TIMEOUT
    assert answer.entries[0].status.message and list(held) == [one]


async def test_a_handle_stays_held_if_the_call_ends_while_its_renewal_is_under_way() -> None:
    receipt, table = _receipt("broker-a", 1), HeldHandles()
    held = Held("client", "group", "topic", "id", receipt.encode(), receipt, 0, 0)
    held.renewing = asyncio.get_running_loop().create_future()
    table.add(held)
    call = asyncio.ensure_future(_acknowledge(WaitingBrokers(1), [receipt], table))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert table.is_held(held)


@pytest.mark.parametrize("is_gone", [False, True], ids=["its client lives", "its client has ended"])
async def test_all_handles_of_a_call_that_ends_are_held_again_or_released(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, table = WaitingBrokers(3), HeldHandles()
    released: list[Receipt] = []

    async def change_invisible(receipt: Receipt, *rest: object, suspend: bool = False) -> Receipt:
        released.append(receipt)
        return receipt

    monkeypatch.setattr(brokers, "change_invisible", change_invisible)
    receipts = [_receipt("broker-a", 1), _receipt("broker-b", 1), _receipt("broker-b", 2)]
    for one in receipts:
        table.add(Held(_CALL.client_id, "group", "topic", "id", one.encode(), one, SystemClock().wall_ms(), 0))
    call = asyncio.ensure_future(_acknowledge(brokers, receipts, table))
    while len(brokers.asked) < 2:
        await asyncio.sleep(0)
    assert not len(table)
    if is_gone:
        monkeypatch.setattr(Clients, "get", lambda clients, client_id: None)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while len(released) + len(table) < 3:
        await asyncio.sleep(0)
    assert (released if is_gone else [held.receipt for held in table]) == receipts


@pytest.mark.parametrize("is_forwarded", [False, True], ids=["made invisible", "forwarded"])
async def test_a_handle_stays_held_if_a_call_about_its_message_ends(
    is_forwarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, table, receipt = WaitingBrokers(1), HeldHandles(), _receipt("broker-a", 1)
    held = Held(_CALL.client_id, "group", "topic", "id", receipt.encode(), receipt, SystemClock().wall_ms(), 0)
    table.add(held)
    asked = asyncio.Event()

    async def never(*given: object, **named: object) -> Receipt:
        asked.set()
        await asyncio.Event().wait()
        return receipt

    monkeypatch.setattr(brokers, "change_invisible", never)
    monkeypatch.setattr(brokers, "forward_to_dead_letters", never)
    monkeypatch.setattr(Clients, "get", lambda clients, client_id: object())
    activity, group, topic = _activity(brokers, table), wire.Resource(name="group"), wire.Resource(name="topic")
    if is_forwarded:
        forward = wire.ForwardMessageToDeadLetterQueueRequest(
            group=group, topic=topic, message_id="id", receipt_handle=receipt.encode()
        )
        call = asyncio.ensure_future(activity.forward_message_to_dead_letter_queue(_CALL, forward))
    else:
        change = wire.ChangeInvisibleDurationRequest(
            group=group, topic=topic, message_id="id", receipt_handle=receipt.encode()
        )
        change.invisible_duration.seconds = 30
        call = asyncio.ensure_future(activity.change_invisible_duration(_CALL, change))
    async with asyncio.timeout(_LIMIT_S):
        await asked.wait()
    assert not table.is_held(held)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert table.is_held(held)
