"""Dispatcher of calls: reads who calls, then the request, runs the method, and turns failures into statuses.

The first message of a call is read here, after its metadata has proved who calls.
A method of the protocol that has no handler is answered UNSUPPORTED by name.
Source: RocketMQ 5.3.3, `GrpcMessagingApplication`, `ClientActivity.processTelemetryException`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from proxy.brokers.slowed_callers import SlowedCallers
from proxy.clients.telemetry_stream import TelemetryStream
from proxy.listeners import Listener
from proxy.server.call import Call, make_call, peer_of
from proxy.server.intake import Intake
from proxy.server.protocol import Aborted, Exchange, Handler, Handlers, StatusCode, Stream, Unread
from proxy.server.write_limit import Answer, WriteLimit
from proxy.status import Refusal, status, status_of
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.reader import reader

logger = logging.getLogger(__name__)

# Messages of any method are Any here.
Unary = Callable[[Call, Any], Awaitable[Any]]
Streaming = Callable[[Call, Any, Answer], Awaitable[None]]
Telemetry = Callable[[Call, wire.TelemetryCommand, TelemetryStream], Awaitable[None]]

SERVICE: Final = wire.DESCRIPTOR.services_by_name["MessagingService"]
_TELEMETRY: Final = "Telemetry"
# Methods whose requests come often.
_FREQUENT: Final = frozenset({"SendMessage", "ReceiveMessage", "AckMessage", "ChangeInvisibleDuration"})
# Failures of a telemetry stream that are the client's fault.
_CLIENT_FAULTS: Final = range(wire.BAD_REQUEST, wire.INTERNAL_ERROR)


class _Request(NamedTuple):
    """Requests of one kind; `read` raises DecodeError or ValueError."""

    name: str
    read: Callable[[bytes], Any]


_COMMAND: Final = _Request(wire.TelemetryCommand.DESCRIPTOR.name, wire.TelemetryCommand.FromString)


@dataclass(frozen=True)
class Methods:
    """Handlers by method name."""

    unary: Mapping[str, Unary]
    streaming: Mapping[str, Streaming]
    telemetry: Telemetry
    telemetry_ended: Callable[[str, TelemetryStream], None]


class Admission(Protocol):
    """Rules for who may call.  `prove` and `permit` raise Refusal."""

    def prove(self, call: Call, request_name: str) -> str | None:
        """Check who calls, by the metadata alone; return the account."""

    def permit(self, call: Call, request: Any) -> str | None:
        """Check whether who calls, as `prove` found, may do what `request` asks for; return the account."""

    def bind(self, call: Call, stream: TelemetryStream) -> None:
        """Let a stream end with the token of who calls, if that proved who it is."""


@dataclass(frozen=True)
class Limits:
    """Times that calls get, in s."""

    write_s: float
    settings_s: float


class Dispatcher:
    """Calls of one port.  `listener` returns what is known when the port is open.

    `peer_behind` returns the client behind a connection of the entrance.  `slowed` calls wait.
    """

    def __init__(
        self,
        methods: Methods,
        listener: Callable[[], Listener],
        admission: Admission,
        intake: Intake,
        limits: Limits,
        slowed: SlowedCallers,
        peer_behind: Callable[[tuple[str, int]], tuple[str, int]] = lambda peer: peer,
    ) -> None:
        self._methods = methods
        self._listener = listener
        self._admission = admission
        self._intake = intake
        self._limits = limits
        self._slowed = slowed
        self._peer_behind = peer_behind

    def handlers(self) -> Handlers:
        """Return the handler of every method of the protocol."""
        return {f"/{SERVICE.full_name}/{method.name}": self._handler(method) for method in SERVICE.methods}

    def _handler(self, method: Any) -> Handler:
        parsed, response = (getattr(wire, kind.name) for kind in (method.input_type, method.output_type))
        request = _Request(method.input_type.name, reader(parsed) if method.name in _FREQUENT else parsed.FromString)
        if method.name == _TELEMETRY:
            return Handler(self._telemetry, is_unary=False)
        if method.server_streaming:
            streaming = self._methods.streaming.get(method.name) or _unsupported_stream(method.name, response)
            return Handler(self._streaming(streaming, request, response), is_unary=False)
        unary = self._methods.unary.get(method.name) or _unsupported(method.name, response)
        return Handler(self._unary(unary, request, response), is_unary=True)

    def _call(self, exchange: Exchange) -> Call:
        peer = self._peer_behind(peer_of(exchange.peer()))
        return make_call(exchange.invocation_metadata(), peer, self._listener())

    def _unary(self, method: Unary, kind: "_Request", response: Any) -> Callable[[Exchange], Awaitable[bytes]]:
        async def serve(exchange: Exchange) -> bytes:
            try:
                call = self._call(exchange)
                return _encoded(await self._served(call, exchange, kind, method))
            except Exception as error:
                return _encoded(response(status=status_of(error)))

        return serve

    async def _served(self, call: Call, exchange: Exchange, kind: "_Request", serve: Unary) -> Any:
        """Prove who calls, read the request, and return what `serve` makes of it.  Raises Refusal."""
        account = self._admission.prove(call, kind.name)
        if self._slowed:
            await self._slowed.wait(call.peer, account)
        raw = await self._intake.read(call.peer, exchange.read)
        try:
            request, account = self._request(call, raw, kind)
            call = call if account is None else call._replace(account=account)
            return await serve(call, request)
        finally:
            self._intake.done(call.peer, len(raw))

    def _request(self, call: Call, raw: bytes, kind: "_Request") -> tuple[Any, str | None]:
        """Return the request in `raw`, if the caller may ask for it, and the caller's account.  Raises Refusal."""
        try:
            request = kind.read(raw)
        except (DecodeError, ValueError) as error:
            raise Refusal(wire.BAD_REQUEST, f"{kind.name} cannot be read: {error}") from None
        return request, self._admission.permit(call, request)

    def _streaming(self, method: Streaming, kind: "_Request", response: Any) -> Callable[[Stream], Awaitable[None]]:
        write_s = self._limits.write_s

        async def serve(exchange: Stream) -> None:
            async def write(part: Any) -> None:
                await exchange.write(_encoded(part))

            try:
                async with asyncio.timeout(None) as scope:
                    limit = WriteLimit(scope, write, write_s, exchange)

                    async def begin(call: Call, request: Any) -> None:
                        # The call may have waited until now.
                        await method(call.with_remaining(exchange.time_remaining()), request, limit)

                    try:
                        await self._served(self._call(exchange), exchange, kind, begin)
                    except Aborted:  # by the server: no part can be written any more
                        raise
                    except Exception as error:
                        await limit(response(status=status_of(error)))
                    finally:
                        limit.close()
            except TimeoutError:
                peer_lines.info(logger, exchange.peer(), "event=stream_unread peer=%s", exchange.peer())
                raise Unread from None

        return serve

    async def _telemetry(self, exchange: Exchange) -> None:
        """Serve one telemetry stream until the client or the proxy ends it."""

        async def write(command: wire.TelemetryCommand) -> None:
            await exchange.write(command.SerializeToString())

        try:
            call = self._call(exchange)
            self._admission.prove(call, _COMMAND.name)
        except Refusal as refused:
            await write(wire.TelemetryCommand(status=status_of(refused)))
            return
        serving = asyncio.current_task()
        assert serving is not None
        # The task of the call alone: one more that waits for its end would cost an idle client 2 KiB.
        stream = TelemetryStream(call.client_id, write, serving.cancel, self._limits.write_s)
        failure: Aborted | None = None
        try:
            try:
                self._admission.bind(call, stream)
                # Without settings a stream is of no use, and anybody can open thousands.
                async with asyncio.timeout(self._limits.settings_s):
                    raw = await exchange.read()
                while type(raw) is bytes and await self._take_command(call, exchange, raw, stream):
                    # Nothing but the call stays while the client is silent.
                    del raw
                    raw = await exchange.read()
            except Exception as error:
                failure = _telemetry_aborted(error)
            await stream.written()  # grpcio never ends a call that ends within a write
        except asyncio.CancelledError:
            # The client may have cancelled the call, too.
            if not stream.is_closed or serving.uncancel():
                raise
        finally:
            stream.ended()
            self._methods.telemetry_ended(call.client_id, stream)
        if failure is not None:
            raise failure

    async def _take_command(self, call: Call, exchange: Exchange, raw: bytes, stream: TelemetryStream) -> bool:
        """Take one message of a telemetry stream.  Return whether the stream goes on."""
        try:
            self._admission.prove(call, _COMMAND.name)
            command, account = self._request(call, raw, _COMMAND)
        except Refusal as refused:
            # As in RocketMQ: what the gate refuses is told in the stream, which then ends.
            await exchange.write(wire.TelemetryCommand(status=status_of(refused)).SerializeToString())
            return False
        await self._methods.telemetry(call._replace(account=account), command, stream)
        return True


def _encoded(part: Any) -> bytes:
    """Return the bytes of a part of an answer; a method may have encoded it."""
    return part if type(part) is bytes else bytes(part.SerializeToString())


def _telemetry_aborted(error: Exception) -> Aborted:
    if isinstance(error, TimeoutError):
        return Aborted(StatusCode.DEADLINE_EXCEEDED, "no settings arrived on the telemetry stream")
    found = status_of(error)
    code = StatusCode.INVALID_ARGUMENT if found.code in _CLIENT_FAULTS else StatusCode.INTERNAL
    return Aborted(code, f"process client telemetryCommand failed. {found.message}")


def _unsupported(name: str, response: Any) -> Unary:
    async def refuse(call: Call, request: Any) -> Any:
        return response(status=status(wire.UNSUPPORTED, f"{name} is not supported by this proxy"))

    return refuse


def _unsupported_stream(name: str, response: Any) -> Streaming:
    async def refuse(call: Call, request: Any, write: Answer) -> None:
        await write(response(status=status(wire.UNSUPPORTED, f"{name} is not supported by this proxy")))

    return refuse
