"""The gRPC server of a listener has no registered methods: each would cost every call some time."""

from typing import Any

import grpc
import pytest

from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.server.dispatcher import SERVICE, Dispatcher, Limits, Methods
from proxy.server.grpc_server import GrpcServer
from proxy.server.intake import Intake
from tests.proxy.rig import Anybody


class RecordingServer:
    """gRPC's server, which records what it is given."""

    def __init__(self) -> None:
        self.generic: list[str] = []
        self.registered: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self.generic += [handler.service_name() for handler in handlers]

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        self.registered.append(service)


async def _telemetry(call: Any, command: Any, stream: Any) -> None: ...


def test_every_service_is_found_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RecordingServer()
    monkeypatch.setattr(grpc.aio, "server", lambda **_: server)
    methods = Methods({}, {}, _telemetry, lambda client_id, stream: None)
    listener = Listener("default", 0)
    dispatcher = Dispatcher(methods, lambda: listener, Anybody(), Intake(1, 1), Limits(1, 1))
    GrpcServer(dispatcher, ProxyConfig(), is_shared=False)
    assert server.registered == []
    assert {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", SERVICE.full_name} == {*server.generic}
