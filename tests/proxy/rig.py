"""A proxy in the test's own event loop, before a real broker, and a gRPC client without any client library."""

import contextlib
import itertools
import os
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc

from acl.auth.settings import AuthSettings
from proxy.config import AUTO, ProxyConfig
from proxy.proxy_server import Proxy
from proxy.server.dispatcher import SERVICE
from sprocket.common.clock import Clock, SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import OwnBroker

_numbers = itertools.count()
ENDPOINTS = wire.Endpoints(scheme=wire.IPv4, addresses=[wire.Address(host="127.0.0.1", port=8081)])


AnyBroker = Broker | OwnBroker
# Of the proxies under test, where a test does not say otherwise.
SETTINGS: Final[Mapping[str, Any]] = {
    "grpc_server": os.environ.get("GRPC_SERVER", AUTO),
    "tls_server_mode": "disabled", "grpc_client_consumer_min_long_polling_timeout_millis": 100,
    "min_invisible_time_mills_for_recv": 1000, "topic_config_cache_refresh_seconds": 0,
    "subscription_group_config_cache_refresh_seconds": 0, "grpc_shutdown_time_seconds": 0,
}  # fmt: skip


class Anybody:
    """Admission of every call."""

    def prove(self, call: Any, request_name: str) -> None: ...

    def permit(self, call: Any, request: Any) -> None: ...

    def bind(self, call: Any, stream: Any) -> None: ...


class GrpcClient:
    """One client: `call` for methods with one answer, `stream` for those with a stream of them."""

    def __init__(self, port: int, client_id: str, channel: Any = None) -> None:
        self.client_id = client_id
        self.metadata: list[tuple[str, str]] = [
            ("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.8"),
        ]  # fmt: skip
        self.channel = channel or grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def call(self, name: str, request: Any, *, metadata: Any = None, timeout_s: float = 30) -> Any:
        found = self._method("unary_unary", name, request)
        return await found(request, metadata=self.metadata if metadata is None else metadata, timeout=timeout_s)

    async def stream(self, name: str, request: Any, *, timeout_s: float = 30) -> list[Any]:
        found = self._method("unary_stream", name, request)
        return [part async for part in found(request, metadata=self.metadata, timeout=timeout_s)]

    def open_stream(self, name: str, request: Any, *, timeout_s: float = 30) -> Any:
        return self._method("unary_stream", name, request)(request, metadata=self.metadata, timeout=timeout_s)

    def telemetry(self) -> Any:
        """The open stream."""
        return self._method("stream_stream", "Telemetry", wire.TelemetryCommand())(metadata=self.metadata)

    async def report(self, settings: wire.Settings) -> tuple[Any, wire.TelemetryCommand]:
        """Report settings on a new telemetry stream; return the stream and the answer."""
        stream = self.telemetry()
        await stream.write(wire.TelemetryCommand(settings=settings))
        return stream, await stream.read()

    def _method(self, kind: str, name: str, request: Any) -> Any:
        answer = getattr(wire, SERVICE.methods_by_name[name].output_type.name)
        make = getattr(self.channel, kind)
        path = f"/{SERVICE.full_name}/{name}"
        return make(path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString)

    async def close(self) -> None:
        await self.channel.close()

    # What most tests do

    async def send(self, topic: str, *bodies: str, **system: Any) -> Any:
        messages = [message(topic, body, **system) for body in bodies]
        return await self.call("SendMessage", wire.SendMessageRequest(messages=messages))

    async def receive(
        self, topic: str, group: str, *, wait_s: int = 5, invisible_s: int = 20, **fields: Any
    ) -> list[Any]:
        request = receive_request(topic, group, wait_s=wait_s, invisible_s=invisible_s, **fields)
        return await self.stream("ReceiveMessage", request)

    async def messages(self, topic: str, group: str, count: int, **fields: Any) -> list[wire.Message]:
        """Receive until there are `count`."""
        found: list[wire.Message] = []
        for _ in range(12):
            found += [part.message for part in await self.receive(topic, group, **fields) if part.HasField("message")]
            if len(found) >= count:
                break
        return found

    async def ack(self, topic: str, group: str, *entries: tuple[str, str]) -> Any:
        request = wire.AckMessageRequest(
            group=wire.Resource(name=group),
            topic=wire.Resource(name=topic),
            entries=[wire.AckMessageEntry(message_id=one, receipt_handle=handle) for one, handle in entries],
        )
        return await self.call("AckMessage", request)


def message(topic: str, body: str, **system: Any) -> wire.Message:
    """A message with an id of its own."""
    system.setdefault("message_id", f"id-{body[:20]}-{next(_numbers)}")
    properties = wire.SystemProperties(**system)
    return wire.Message(topic=wire.Resource(name=topic), body=body.encode(), system_properties=properties)


def receive_request(topic: str, group: str, *, wait_s: int = 5, invisible_s: int = 20, **fields: Any) -> Any:
    request = wire.ReceiveMessageRequest(
        group=wire.Resource(name=group),
        message_queue=wire.MessageQueue(topic=wire.Resource(name=topic)),
        batch_size=fields.pop("batch_size", 16),
        **fields,
    )
    request.long_polling_timeout.seconds = wait_s
    request.invisible_duration.seconds = invisible_s
    return request


def handle_of(received: wire.Message) -> tuple[str, str]:
    return received.system_properties.message_id, received.system_properties.receipt_handle


def consumer_settings(topic: str, group: str, kind: int = wire.PUSH_CONSUMER) -> wire.Settings:
    entry = wire.SubscriptionEntry(topic=wire.Resource(name=topic), expression=wire.FilterExpression(expression="*"))
    subscription = wire.Subscription(group=wire.Resource(name=group), subscriptions=[entry])
    return wire.Settings(client_type=kind, subscription=subscription)


def producer_settings(*topics: str) -> wire.Settings:
    publishing = wire.Publishing(topics=[wire.Resource(name=topic) for topic in topics])
    return wire.Settings(client_type=wire.PRODUCER, publishing=publishing)


class Rig:
    """A running proxy; `client` makes clients of it.  `proxy` is in this process, or None and at `port`."""

    def __init__(self, proxy: Proxy | None, broker: AnyBroker, port: int = 0) -> None:
        self._proxy = proxy
        self._port = port
        self.broker = broker
        self._clients: list[GrpcClient] = []

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "the proxy is in another process"
        return self._proxy

    @property
    def port(self) -> int:
        return self._port or self.proxy.listeners[0].port

    def client(self, client_id: str = "", *, port: int | None = None, channel: Any = None) -> GrpcClient:
        made = GrpcClient(port or self.port, client_id or f"client-{next(_numbers)}", channel)
        self._clients.append(made)
        return made

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@contextlib.asynccontextmanager
async def running(
    broker: AnyBroker, *, clock: Clock | None = None, auth: AuthSettings | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """A proxy before `broker`."""
    places = {"namesrv_addr": broker.namesrv, "grpc_server_port": 0, "bind_address": "127.0.0.1"}
    config = ProxyConfig(**{**SETTINGS, **places, "remoting_listen_port": 0, **settings})
    proxy = Proxy(config, clock=clock or SystemClock(), choose=random.randrange, auth=auth)
    await proxy.start()
    rig = Rig(proxy, broker)
    try:
        yield rig
    finally:
        await rig.close()
        await proxy.stop()


async def create_topic(broker: AnyBroker, kind: str = "NORMAL", queues: int = 2, name: str = "") -> str:
    """A new topic for messages of this kind."""
    name = name or f"Proxy{kind}{next(_numbers)}"
    header = CreateTopicRequestHeader(
        topic=name, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes=f"+message.type={kind}",
    )  # fmt: skip
    await _ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    return name


async def create_group(broker: AnyBroker, name: str = "", **settings: Any) -> str:
    """A new consumer group."""
    name = name or f"group-{next(_numbers)}"
    body = dumps(SubscriptionGroupConfig(name, **settings))
    await _ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    return name


async def _ask(broker: AnyBroker, code: int, header: Any, body: bytes = b"") -> None:
    client = RemotingClient()
    try:
        response = await client.invoke(broker.address, code, header, body)
        assert response.code == 0, response.remark
    finally:
        await client.close()
