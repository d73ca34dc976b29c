"""The proxy's own part of a SendMessage, a ReceiveMessage and an AckMessage, without gRPC and without a broker, in us.

    python -m benchmarks.proxy.own [--profile send|receive-1|receive-32|ack]

A call gives the request's bytes, and a connection answers each request in the next turn of the loop.  Requests to the
broker are encoded, and its answers decoded.  Receives ask for auto-renewal.  Eight calls run at a time; shown is the
lowest of many turns, without what an empty task costs.  So it repeats within a few percent on a busy machine, where
`benchmarks.proxy.run` does not.
"""

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import uvloop

from benchmarks.system.records import message_record
from proxy.activity.ack import AckActivity
from proxy.activity.receive import ReceiveActivity
from proxy.activity.send import SendActivity
from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.clients.connections import Connections
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.handles.held_handles import HeldHandles
from proxy.handles.renewal import Renewal
from proxy.listeners import Listener
from proxy.server.dispatcher import SERVICE, Dispatcher, Limits, Methods
from proxy.server.intake import Intake
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.common.clock import SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.codec_json import decode_response, encode_header
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import FLAG_RESPONSE
from sprocket.remoting.frames import encode_request
from sprocket.remoting.message import properties as names

_TURNS: Final = 3000
_TOGETHER: Final = 8
_METADATA: Final = [
    ("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.8"),
    ("x-mq-protocol", "v2"), ("x-mq-date-time", "20261129T125500Z"), ("x-mq-request-id", "0d5a1b9c"),
]  # fmt: skip
_TOPIC: Final = wire.Resource(name="Bench")
_GROUP: Final = wire.Resource(name="readers")
_BATCH: Final = 32
_INVISIBLE_MS: Final = 600_000


def _send_request() -> bytes:
    system = wire.SystemProperties(
        message_id="01" + "A" * 32, tag="tag", keys=["key"], body_encoding=wire.IDENTITY, message_type=wire.NORMAL,
        born_host="client-host",
    )  # fmt: skip
    system.born_timestamp.seconds = 1_700_000_000
    message = wire.Message(topic=_TOPIC, body=bytes(1024), system_properties=system)
    return wire.SendMessageRequest(messages=[message]).SerializeToString()


def _receive_request(count: int) -> bytes:
    request = wire.ReceiveMessageRequest(
        group=_GROUP,
        message_queue=wire.MessageQueue(topic=_TOPIC, id=-1, broker=wire.Broker(name="broker-a")),
        filter_expression=wire.FilterExpression(type=wire.TAG, expression="*"),
        batch_size=count,
        auto_renew=True,
    )
    request.long_polling_timeout.seconds = 30
    return request.SerializeToString()


def _records(count: int) -> bytes:
    """Return what a pop takes from one queue, as this proxy stores sends."""
    found = []
    for offset in range(count):
        properties = {
            names.UNIQ_KEY: f"01{offset:032X}", names.TAGS: "tag", names.KEYS: "key", names.PRODUCER_GROUP: "Bench",
            "__BORNHOST": "client-host", names.BORN_TIMESTAMP: "1700000000000", names.CLUSTER: "DefaultCluster",
        }  # fmt: skip
        encoded = names.encode(properties).encode()
        found.append(message_record(
            bytes(1024), topic=b"Bench", queue_id=1, queue_offset=offset, at=offset * 1500, properties=encoded
        ))  # fmt: skip
    return b"".join(found)


class _Connection:
    """Connection to a broker that stores every message, answers a pop with `records`, and takes acknowledgements."""

    is_signing = False

    def __init__(self) -> None:
        self.records = b""
        self.count = 0
        self._group = dumps(SubscriptionGroupConfig("readers"))

    def next_opaque(self) -> int:
        return 1

    def request(self, code: int, header: Any, body: bytes = b"", *, timeout_s: float) -> Any:
        encode_request(code, 1, header, len(body))
        waiter = asyncio.get_running_loop().create_future()
        self.request_encoded(waiter, code)
        return waiter

    def request_encoded(self, waiter: Any, code: int, *_: object) -> None:
        asyncio.get_running_loop().call_soon(self._answer, waiter, code)

    def _answer(self, waiter: Any, code: int) -> None:
        response = decode_response(encode_header(0, 1, FLAG_RESPONSE, None, self._fields(code)))
        assert response is not None
        if code == RequestCode.POP_MESSAGE:
            response.body = self.records
        elif code == RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG:
            response.body = self._group
        waiter.set_result(response)

    def _fields(self, code: int) -> Mapping[str, str]:
        if code != RequestCode.POP_MESSAGE:
            return {"msgId": "7F00000100002A9F0000000000000000", "queueId": "1", "queueOffset": "5"}
        return {
            "popTime": str(int(time.time() * 1000)), "invisibleTime": str(_INVISIBLE_MS), "reviveQid": "2",
            "restNum": "0", "startOffsetInfo": "0 1 0", "msgOffsetInfo": f"0 1 {','.join(map(str, range(self.count)))}",
        }  # fmt: skip


class _Bench:
    """The proxy's methods before one connection; `handlers` are those that gRPC would call."""

    def __init__(self) -> None:
        queues = tuple(MessageQueue("Bench", "broker-a", number) for number in range(4))
        route = TopicRoute("Bench", queues, queues, {"broker-a": {0: "127.0.0.1:1"}})
        self.connection, config = _Connection(), ProxyConfig(enable_topic_message_type_check=False)

        async def routed(_: str) -> TopicRoute:
            return route

        instance: Any = SimpleNamespace(
            clock=SystemClock(), remoting=SimpleNamespace(open_channel=lambda _: self.connection),
            cached_route=lambda _: route, master_address=lambda _: "127.0.0.1:1", route=routed,
        )  # fmt: skip
        brokers = Brokers(instance)
        metadata = Metadata(brokers, config)
        monotonic = instance.clock.monotonic
        clients = Clients(monotonic, silent_s=60, lost_s=60)
        self.held = HeldHandles()
        loop = asyncio.get_running_loop()
        none: Any = None  # what no call here asks for
        renewal = Renewal(self.held, brokers, metadata, config, Connections(monotonic), clients, loop.create_task)
        receive = ReceiveActivity(brokers, metadata, clients, renewal, config, none, loop.create_task)
        send = SendActivity(brokers, metadata, config, lambda: 0)
        ack = AckActivity(brokers, clients, renewal, config)
        admission: Any = SimpleNamespace(prove=lambda *_: None, permit=lambda *_: None)
        unary = {"SendMessage": send.send_message, "AckMessage": ack.ack_message}
        methods = Methods(unary, {"ReceiveMessage": receive.receive_message}, none, none)
        intake, listener = Intake(1 << 28, 5 << 20), Listener("bench", 1)
        limits = Limits(1, 1)
        self.handlers = Dispatcher(methods, lambda: listener, admission, intake, limits, brokers.slowed).handlers()

    async def call(self, name: str, request: bytes) -> list[bytes]:
        """Return the parts of the answer to a call."""
        parts: list[bytes] = []

        async def read() -> bytes:
            return request

        async def write(part: bytes) -> None:
            parts.append(part)

        exchange: Any = SimpleNamespace(
            invocation_metadata=lambda: _METADATA, peer=lambda: "ipv4:127.0.0.1:4711", read=read, write=write,
            time_remaining=lambda: 60.0, hold=lambda size, not_taken=None: None,
        )  # fmt: skip
        answer = await self.handlers[f"/{SERVICE.full_name}/{name}"].serve(exchange)
        return parts if answer is None else [answer]

    async def send(self, request: bytes) -> None:
        """Send one message."""
        (answer,) = await self.call("SendMessage", request)
        assert answer.startswith(_OK), answer

    async def receive(self, request: bytes) -> None:
        """Receive what the connection has, and forget it, as acknowledgements would."""
        parts = await self.call("ReceiveMessage", request)
        assert len(parts) == self.connection.count + 2
        self.held.take_client(_METADATA[0][1])

    async def ack(self, request: bytes) -> None:
        """Acknowledge one message."""
        (answer,) = await self.call("AckMessage", request)
        assert answer.startswith(_OK), answer

    async def works(self) -> dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], None]]]:
        """Return each kind of work, with what prepares it."""

        def has(count: int) -> Callable[[], None]:
            records = _records(count)

            def prepare() -> None:
                self.connection.records, self.connection.count = records, count

            return prepare

        sends, one, batch = _send_request(), _receive_request(1), _receive_request(_BATCH)
        has(1)()
        received = wire.ReceiveMessageResponse.FromString((await self.call("ReceiveMessage", one))[1])
        system = received.message.system_properties
        entry = wire.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
        acks = wire.AckMessageRequest(group=_GROUP, topic=_TOPIC, entries=[entry]).SerializeToString()
        return {
            "send": (lambda: self.send(sends), has(1)),
            "receive-1": (lambda: self.receive(one), has(1)),
            f"receive-{_BATCH}": (lambda: self.receive(batch), has(_BATCH)),
            "ack": (lambda: self.ack(acks), has(1)),
        }


_OK: Final = wire.SendMessageResponse(status=wire.Status(code=wire.OK, message="OK")).SerializeToString()


async def _nothing() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def _lowest_us(work: Callable[[], Awaitable[object]], turns: int = _TURNS) -> float:
    found = []
    for _ in range(turns):
        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(_TOGETHER)))
        found.append(time.perf_counter() - begin)
    return min(found) / _TOGETHER * 1e6


async def _measure(profiled: str | None) -> None:
    works = await _Bench().works()
    if profiled is not None:
        work, prepare = works[profiled]
        prepare()
        with cProfile.Profile() as profile:
            await _lowest_us(work, 500)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        return
    empty = await _lowest_us(_nothing)
    print(f"{empty:8.1f} us of an empty task, which the others are without")
    for name, (work, prepare) in works.items():
        prepare()
        print(f"{await _lowest_us(work) - empty:8.1f} us {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="show where the time of one kind of work goes, in place of all figures")
    uvloop.run(_measure(parser.parse_args().profile))
