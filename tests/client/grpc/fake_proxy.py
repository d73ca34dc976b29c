"""A gRPC server that takes settings and answers what a test tells it; every other call is refused."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from sprocket.grpc_wire import messaging_pb2 as wire

_SERVICE = wire.DESCRIPTOR.services_by_name["MessagingService"]
_OK = wire.Status(code=wire.OK)


class FakeProxy:
    """The server; `answers` has a function for each unary method that it serves."""

    def __init__(self, answers: Mapping[str, Callable[[Any], Any]] | None = None) -> None:
        self.streams = 0  # open telemetry streams
        self._server = grpc.aio.server()
        handlers = {name: _unary(name, answer) for name, answer in (answers or {}).items()}
        handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._telemetry, wire.TelemetryCommand.FromString, wire.TelemetryCommand.SerializeToString
        )
        generic = grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    async def _telemetry(self, _: Any, context: Any) -> None:
        self.streams += 1
        try:
            while (command := await context.read()) is not grpc.aio.EOF:
                await context.write(wire.TelemetryCommand(status=_OK, settings=command.settings))
        finally:
            self.streams -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeProxy"]:
        await self._server.start()
        try:
            yield self
        finally:
            await self._server.stop(0)


def route(request: wire.QueryRouteRequest) -> wire.QueryRouteResponse:
    """Answer with one queue that takes normal messages."""
    broker = wire.Broker(name="broker-a", id=0, endpoints=request.endpoints)
    queue = wire.MessageQueue(
        topic=request.topic, permission=wire.READ_WRITE, broker=broker, accept_message_types=[wire.NORMAL]
    )
    return wire.QueryRouteResponse(status=_OK, message_queues=[queue])


def _unary(name: str, answer: Callable[[Any], Any]) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        return answer(request)

    method = _SERVICE.methods_by_name[name]
    request, response = (getattr(wire, one.name) for one in (method.input_type, method.output_type))
    return grpc.unary_unary_rpc_method_handler(serve, request.FromString, response.SerializeToString)
