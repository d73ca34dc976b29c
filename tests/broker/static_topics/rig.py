"""Two brokers and a name server in the test's process, and the mappings of a static topic on them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from store.record.record import Record, decode
from tests.broker.rig import TOPIC, TestClient, create, running_broker

A, B = "broker-a", "broker-b"


def item(gen: int, queue_id: int, bname: str, logic_offset: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen, queue_id, bname, logic_offset)


def body(bname: str, hosted: dict[int, list[LogicQueueMappingItem]], *, epoch: int = 1, **changes: Any) -> bytes:
    """The body of UPDATE_AND_CREATE_STATIC_TOPIC in fastjson's dialect, as RocketMQ's tool sends it."""
    detail = TopicQueueMappingDetail(topic=TOPIC, total_queues=2, bname=bname, epoch=epoch)
    detail.hosted_queues = {str(logical): items for logical, items in hosted.items()}
    text = dumps(msgspec.structs.replace(detail, **changes))
    for logical in hosted:
        text = text.replace(b'"%d":' % logical, b"%d:" % logical)
    return text


@dataclass
class Site:
    """The two brokers; `clients` by the name of the broker."""

    brokers: dict[str, Broker]
    clients: dict[str, TestClient]
    names: NameServer

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.names.port}"

    async def put(
        self, bname: str, hosted: dict[int, list[LogicQueueMappingItem]], *, epoch: int, queues: int = 2
    ) -> ReceivedResponse:
        header = create(read_queue_nums=queues, write_queue_nums=queues)
        return await self.clients[bname].ask_well(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body(bname, hosted, epoch=epoch)
        )

    async def created(self) -> None:
        """Logical queue 0 is queue 0 of broker a; 1 is queue 0 of broker b."""
        await self.put(A, {0: [item(0, 0, A, 0)]}, epoch=1)
        await self.put(B, {1: [item(0, 0, B, 0)]}, epoch=1)

    async def remapped(self, logic_offset: int) -> None:
        """Logical queue 0 moves to queue 1 of broker b."""
        items = [item(0, 0, A, 0), item(1, 1, B, logic_offset)]
        await self.put(B, {0: items, 1: [item(0, 0, B, 0)]}, epoch=2)
        await self.put(A, {0: items}, epoch=2)


@asynccontextmanager
async def site(root: Path, **changes: Any) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        names = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
        await names.start()
        stack.push_async_callback(names.stop)
        address = f"127.0.0.1:{names.port}"
        brokers, clients = {}, {}
        for name in (A, B):
            running = running_broker(root / name, broker_name=name, namesrv_addr=address, **changes)
            brokers[name], clients[name] = await stack.enter_async_context(running)
            assert await brokers[name].registration.wait_registered(60)
        yield Site(brokers, clients, names)


def records(body: bytes) -> list[Record]:
    """The records of a pull's response."""
    found, view = [], memoryview(body)
    while view:
        size = int.from_bytes(view[:4], "big")
        record = decode(view[:size])
        assert isinstance(record, Record)
        found.append(record)
        view = view[size:]
    return found
