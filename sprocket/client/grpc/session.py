"""The telemetry stream of one client: its settings, the server's answer, and commands of the proxy.

Settings are sent at the start, after every reconnection, and when they change.  The stream goes where calls go: if
they move to another endpoint, that one gets a stream too, because a proxy refuses or delays calls of clients whose
settings it does not know.
Source: RocketMQ 5.3.3, `ClientActivity.telemetry`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import grpc

from sprocket.client.connection.outages import Outages
from sprocket.client.connection.wakeup import pause
from sprocket.client.errors import ClientError, ConnectionLost
from sprocket.client.grpc.calls import Calls, failure_of, refusal_of
from sprocket.grpc_wire import messaging_pb2 as wire

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5


class Session:
    """Telemetry stream that is opened again whenever it ends, until its task is cancelled.

    `settings` returns what this client reports; `recover` gets questions about open transactions, `lost` the lite
    topics that another client has taken.
    """

    def __init__(
        self,
        calls: Calls,
        settings: Callable[[], wire.Settings],
        outages: Outages,
        recover: Callable[[wire.RecoverOrphanedTransactionCommand], None] = lambda command: None,
        lost: Callable[[wire.NotifyUnsubscribeLiteCommand], None] = lambda command: None,
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._outages = outages
        self._recover = recover
        self._lost = lost
        self._stream: Any = None
        self._answered = asyncio.Event()
        self._moved = asyncio.Event()
        calls.on_move.append(self._calls_moved)
        self.server = wire.Settings()  # what the proxy answered; empty before

    async def ready(self, timeout_s: float) -> None:
        """Wait until the proxy has answered, for at most `timeout_s`; the call that follows tells the failure."""
        if not self._answered.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._answered.wait()
            except TimeoutError:
                pass

    @property
    def opened(self) -> object:
        """The open stream, another object after each reconnection; None while there is none."""
        return self._stream

    async def report(self) -> None:
        """Send the settings again.  A stream that is down sends them when it is back."""
        if self._stream is not None:
            try:
                await self._stream.write(wire.TelemetryCommand(settings=self._settings()))
            except (grpc.RpcError, asyncio.InvalidStateError) as error:
                logger.info("event=settings_not_sent reason=%r", str(error))

    async def run(self) -> None:
        """Keep the stream open forever."""
        while True:
            self._moved.clear()
            address, is_refused = self._calls.address, False
            try:
                if await self._serve(address):
                    logger.info("event=telemetry_moved from=%s to=%s", address, self._calls.address)
                    continue
                error: ClientError = ConnectionLost(f"{address} ended the telemetry stream")
            except grpc.RpcError as failed:
                error = failure_of(failed, address, 0)
                is_refused = failed.code() is grpc.StatusCode.INVALID_ARGUMENT  # how proxies refuse settings
                if address == self._calls.address:
                    self._calls.next_endpoint()
            except ClientError as refused:
                error, is_refused = refused, True
            finally:
                self._stream = None
                self._answered.clear()
            if is_refused:
                self._answered.set()  # each call gets its own refusal, without a wait
            if self._outages.failed("telemetry", error):
                logger.warning("event=telemetry_lost proxy=%s reason=%r", address, str(error))
            await pause(_RETRY_S)

    async def _serve(self, address: str) -> bool:
        """Serve one stream until its end, or until calls go elsewhere; return whether they do.

        Raises ClientError if the proxy refuses the settings.
        """
        await self._calls.ready()
        stream = self._calls.telemetry()
        moving = asyncio.ensure_future(self._moved.wait())
        reading: asyncio.Future[Any] | None = None
        try:
            await stream.write(wire.TelemetryCommand(settings=self._settings()))
            self._stream = stream
            while True:
                reading = asyncio.ensure_future(stream.read())
                await asyncio.wait([reading, moving], return_when=asyncio.FIRST_COMPLETED)
                if moving.done():
                    return True
                command = reading.result()
                if command is grpc.aio.EOF:
                    return False
                await self._take(command, stream, address)
        finally:
            moving.cancel()
            if reading is not None and not reading.cancel() and not reading.cancelled():
                reading.exception()  # retrieve it: the stream is over
            stream.cancel()

    def _calls_moved(self) -> None:
        # Calls wait until the new endpoint knows this client.
        self._answered.clear()
        self._moved.set()

    async def _take(self, command: wire.TelemetryCommand, stream: Any, address: str) -> None:
        if command.HasField("status") and command.status.code not in (wire.OK, wire.CODE_UNSPECIFIED):
            raise refusal_of(command.status, address)
        kind = command.WhichOneof("command")
        if kind == "settings":
            self.server = command.settings
            over = self._outages.succeeded("telemetry")
            if over is not None:
                logger.info("event=telemetry_recovered proxy=%s after_s=%.1f failures=%d", address, *over)
            self._answered.set()
        elif kind == "recover_orphaned_transaction_command":
            self._recover(command.recover_orphaned_transaction_command)
        elif kind == "notify_unsubscribe_lite_command":
            self._lost(command.notify_unsubscribe_lite_command)
        elif kind is not None:
            # The proxy waits for these answers: without one an operator's command would time out.
            await stream.write(_unsupported(command, kind))


def _unsupported(command: wire.TelemetryCommand, kind: str) -> wire.TelemetryCommand:
    answer = wire.TelemetryCommand(status=wire.Status(code=wire.NOT_IMPLEMENTED, message=f"{kind} is not served"))
    if kind == "verify_message_command":
        answer.verify_message_result.nonce = command.verify_message_command.nonce
    elif kind == "print_thread_stack_trace_command":
        answer.thread_stack_trace.nonce = command.print_thread_stack_trace_command.nonce
    return answer
