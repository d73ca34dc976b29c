"""The proxy's own part of a SendMessage, without gRPC and without a broker, in us.

    python -m benchmarks.proxy.own

A call gives the request's bytes, and a connection answers each send in the next turn of the loop.  Eight calls run at a
time; shown is the lowest of many turns, without what an empty task costs.  So it repeats within a few percent on a busy
machine, where `benchmarks.proxy.run` does not.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

import uvloop

from proxy.activity.send import SendActivity
from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.server.dispatcher import Dispatcher, Limits, Methods
from proxy.server.intake import Intake
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.common.clock import SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.command import ReceivedResponse

_TURNS: Final = 5000
_TOGETHER: Final = 8
_METADATA: Final = [
    ("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.8"),
    ("x-mq-protocol", "v2"), ("x-mq-date-time", "20261129T125500Z"), ("x-mq-request-id", "0d5a1b9c"),
]  # fmt: skip


def _request() -> bytes:
    system = wire.SystemProperties(
        message_id="01" + "A" * 32, tag="tag", keys=["key"], body_encoding=wire.IDENTITY, message_type=wire.NORMAL,
        born_host="client-host",
    )  # fmt: skip
    system.born_timestamp.seconds = 1_700_000_000
    message = wire.Message(topic=wire.Resource(name="Bench"), body=bytes(1024), system_properties=system)
    return wire.SendMessageRequest(messages=[message]).SerializeToString()


class _Connection:
    """Connection to a broker that stores every message at once."""

    is_signing = False
    fields: Final = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "1", "queueOffset": "5"}

    def __init__(self) -> None:
        self._answer = ReceivedResponse(code=0, ext_fields=self.fields)

    def next_opaque(self) -> int:
        return 1

    def request_encoded(self, waiter: Any, *_: object) -> None:
        asyncio.get_running_loop().call_soon(waiter.set_result, self._answer)


def _handler() -> Any:
    queues = tuple(MessageQueue("Bench", "broker-a", number) for number in range(4))
    route = TopicRoute("Bench", queues, queues, {"broker-a": {0: "127.0.0.1:1"}})
    connection, config = _Connection(), ProxyConfig(enable_topic_message_type_check=False)
    instance: Any = SimpleNamespace(
        clock=SystemClock(), remoting=SimpleNamespace(open_channel=lambda _: connection),
        cached_route=lambda _: route, master_address=lambda _: "127.0.0.1:1",
    )  # fmt: skip
    brokers = Brokers(instance)
    send = SendActivity(brokers, Metadata(brokers, config), config, lambda: 0).send_message
    admission: Any = SimpleNamespace(prove=lambda *_: None, permit=lambda *_: None)
    none: Any = None
    methods = Methods({"SendMessage": send}, {}, none, none)
    intake, listener = Intake(1 << 28, 5 << 20), Listener("bench", 1)
    return Dispatcher(methods, lambda: listener, admission, intake, Limits(1, 1)).handlers()["SendMessage"]


async def _lowest_us(work: Callable[[], Awaitable[object]]) -> float:
    found = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(_TOGETHER)))
        found.append(time.perf_counter() - begin)
    return min(found) / _TOGETHER * 1e6


async def _measure() -> None:
    handler, request = _handler(), _request()

    async def read() -> bytes:
        return request

    context = SimpleNamespace(
        invocation_metadata=lambda: _METADATA, peer=lambda: "ipv4:127.0.0.1:4711", read=read
    )  # fmt: skip

    async def call() -> bytes:
        return bytes(handler.response_serializer(await handler.stream_unary(None, context)))

    async def nothing() -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future

    assert wire.SendMessageResponse.FromString(await call()).status.code == wire.OK
    empty, whole = await _lowest_us(nothing), await _lowest_us(call)
    print(f"{whole - empty:.1f} us for a send, beside {empty:.1f} us of an empty task")


if __name__ == "__main__":
    uvloop.run(_measure())
