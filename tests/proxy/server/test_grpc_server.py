"""The gRPC server of a listener has no registered methods: each would cost every call some time."""

import asyncio
from time import monotonic
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from proxy.brokers.slowed_callers import SlowedCallers
from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.server.byte_budget import ByteBudget
from proxy.server.dispatcher import SERVICE, Dispatcher, Limits, Methods, Streaming, Telemetry
from proxy.server.grpcio_server import GrpcioServer
from proxy.server.intake import Intake
from proxy.server.protocol import Aborted, StatusCode
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.proxy.rig import Anybody


class RecordingServer:
    """gRPC's server, which records what it is given."""

    def __init__(self) -> None:
        self.generic: list[Any] = []
        self.registered: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self.generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        self.registered.append(service)


class Context:
    """A call of a client, whose request is empty."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("x-mq-client-id", "client")]

    def time_remaining(self) -> None:
        return None

    async def read(self) -> bytes:
        return b""

    async def write(self, message: bytes) -> None: ...


async def _telemetry(call: Any, command: Any, stream: Any) -> None: ...


def _dispatcher(telemetry: Telemetry = _telemetry, write_s: float = 1, **streaming: Streaming) -> Dispatcher:
    methods = Methods({}, streaming, telemetry, lambda client_id, stream: None)
    listener, limits = Listener("default", 0), Limits(write_s, 1)
    return Dispatcher(methods, lambda: listener, Anybody(), Intake(1, 1), limits, SlowedCallers(monotonic))


async def test_method_that_is_not_built_is_refused_by_name() -> None:
    answer = await _dispatcher().handlers()[f"/{SERVICE.full_name}/SyncLiteSubscription"].serve(Context())
    assert answer is not None
    read = wire.SyncLiteSubscriptionResponse.FromString(answer)
    assert read.status.code == wire.UNSUPPORTED and "SyncLiteSubscription" in read.status.message


async def test_a_failed_telemetry_stream_tells_why_though_its_client_does_not_read() -> None:
    class Unread(Context):
        async def write(self, message: bytes) -> None:
            await asyncio.Event().wait()

    async def fail(call: Any, command: Any, stream: Any) -> None:
        assert stream.send(wire.TelemetryCommand())
        raise Refusal(wire.BAD_REQUEST, "no such type")

    with pytest.raises(Aborted, match="no such type"):
        await _dispatcher(fail, 0.01).handlers()[f"/{SERVICE.full_name}/Telemetry"].serve(Unread())


async def test_a_stream_that_the_server_aborts_is_not_answered_further() -> None:
    class Full(Context):
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def check_room(self) -> None: ...

        def hold(self, size: int, not_taken: Any = None) -> None: ...

        async def write(self, message: bytes) -> None:
            self.written.append(message)
            raise Aborted(StatusCode.RESOURCE_EXHAUSTED, "too much is unread")

    async def receive(call: Any, request: Any, write: Any) -> None:
        await write(b"message")

    context = Full()
    with pytest.raises(Aborted, match="too much is unread"):
        await _dispatcher(ReceiveMessage=receive).handlers()[f"/{SERVICE.full_name}/ReceiveMessage"].serve(context)
    assert context.written == [b"message"]


def test_every_method_is_found_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RecordingServer()
    monkeypatch.setattr(grpc.aio, "server", lambda **_: server)
    handlers = _dispatcher().handlers()
    GrpcioServer(handlers, ProxyConfig(), ByteBudget(1), is_shared=False)
    assert server.registered == []
    (generic,) = server.generic
    assert all(generic.service(SimpleNamespace(method=path)) is not None for path in handlers)
    assert generic.service(SimpleNamespace(method=f"/{SERVICE.full_name}/None")) is None
