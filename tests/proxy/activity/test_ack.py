"""Acknowledgements on their way to brokers: one alone costs no task, several wait for their answers together."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.activity.ack import AckActivity
from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt
from proxy.clients.connections import Connections
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.handles.held_handles import HeldHandles
from proxy.handles.renewal import Renewal
from proxy.listeners import Listener
from proxy.server.call import Call
from sprocket.client.connection.client_instance import ClientInstance
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

    async def ack(self, receipt: Receipt, group: str, topic: str) -> None:
        self.asked.append(asyncio.current_task())
        await self._all_here.wait()

    async def ack_batch(self, receipts: Sequence[Receipt], group: str, topic: str) -> None:
        await self.ack(receipts[0], group, topic)


async def _acknowledge(brokers: Brokers, receipts: Sequence[Receipt]) -> wire.AckMessageResponse:
    config, clients = ProxyConfig(), Clients(SystemClock().monotonic, silent_s=1, lost_s=1)
    metadata, connections = cast("Metadata", None), cast("Connections", None)  # not asked without held handles
    renewal = Renewal(HeldHandles(), brokers, metadata, config, connections, asyncio.ensure_future)
    request = wire.AckMessageRequest(
        group=wire.Resource(name="group"),
        topic=wire.Resource(name="topic"),
        entries=[wire.AckMessageEntry(message_id="id", receipt_handle=receipt.encode()) for receipt in receipts],
    )
    async with asyncio.timeout(_LIMIT_S):
        return await AckActivity(brokers, clients, renewal, config).ack_message(_CALL, request)


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


async def test_no_acknowledgement_is_no_success() -> None:
    answer = await _acknowledge(WaitingBrokers(1), [])
    assert answer.status.code == wire.INTERNAL_SERVER_ERROR and not answer.entries
