"""gRPC's health checks.  Source: `grpc.health.v1`, `health.proto`."""

import asyncio
from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2 as wire

from proxy.server.protocol import Aborted, Exchange, Handler, Handlers, StatusCode

SERVICE_NAME: Final = wire.DESCRIPTOR.services_by_name["Health"].full_name


class Health:
    """Health of the services with these names, and of the server, whose name is empty.  At first none is served."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset({"", *names})
        self._status = wire.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()

    def handlers(self) -> Handlers:
        """Return the handlers of the service."""
        methods = {"Check": Handler(self._check, True), "List": Handler(self._list, True)}
        methods["Watch"] = Handler(self._watch, False)
        return {f"/{SERVICE_NAME}/{name}": handler for name, handler in methods.items()}

    def say_serving(self, is_serving: bool) -> None:
        """Tell health checks whether calls are served."""
        found = wire.HealthCheckResponse.SERVING if is_serving else wire.HealthCheckResponse.NOT_SERVING
        if found != self._status:
            self._status = found
            self._changed.set()
            self._changed = asyncio.Event()

    async def _check(self, exchange: Exchange) -> bytes:
        if await _asked(exchange) not in self._names:
            raise Aborted(StatusCode.NOT_FOUND)
        return self._answer()

    async def _list(self, exchange: Exchange) -> bytes:
        await exchange.read()
        statuses = {name: wire.HealthCheckResponse(status=self._status) for name in self._names}
        return bytes(wire.HealthListResponse(statuses=statuses).SerializeToString())

    async def _watch(self, exchange: Exchange) -> None:
        if await _asked(exchange) not in self._names:
            unknown = wire.HealthCheckResponse(status=wire.HealthCheckResponse.SERVICE_UNKNOWN)
            await exchange.write(unknown.SerializeToString())
            await asyncio.Event().wait()  # names do not change: until the client goes
        while True:
            changed = self._changed
            await exchange.write(self._answer())
            await changed.wait()

    def _answer(self) -> bytes:
        return bytes(wire.HealthCheckResponse(status=self._status).SerializeToString())


async def _asked(exchange: Exchange) -> str:
    """Return the name of the service in a request."""
    raw = await exchange.read()
    try:
        return str(wire.HealthCheckRequest.FromString(raw if type(raw) is bytes else b"").service)
    except DecodeError:
        raise Aborted(StatusCode.INVALID_ARGUMENT, "HealthCheckRequest cannot be read") from None
