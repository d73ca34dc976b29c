"""Commands to gRPC clients that are answered: try a message, show the threads.

A command is written to the client's telemetry stream with a number, and its answer names that number.
Source: RocketMQ 5.3.3, `GrpcClientChannel`, `GrpcChannelManager`, `ClientActivity.reportThreadStackTrace`,
`reportVerifyMessageResult`.  5.3.3 never sends ReconnectEndpointsCommand.
"""

import asyncio
from itertools import count
from typing import Final

from proxy.clients.registry import Clients
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.consumption import CMResult, ConsumeMessageDirectlyResult

# Commands that wait for their answers, of all clients.
_MAX_WAITING: Final = 1024
_RESULTS: Final = {
    wire.OK: CMResult.SUCCESS,
    wire.FAILED_TO_CONSUME_MESSAGE: CMResult.LATER,
    wire.MESSAGE_CORRUPTED: CMResult.RETURN_NULL,
}


class ClientCommands:
    """Sender of commands, which waits up to `timeout_s` for each answer."""

    def __init__(self, clients: Clients, timeout_s: float) -> None:
        self._clients = clients
        self._timeout_s = timeout_s
        self._numbers = count()
        self._waiting: dict[str, tuple[str, asyncio.Future[wire.TelemetryCommand]]] = {}

    async def verify(self, client_id: str, message: wire.Message) -> ConsumeMessageDirectlyResult:
        """Let a client consume one message, and return the result.  Raises Refusal, TimeoutError."""
        command = wire.TelemetryCommand()
        command.verify_message_command.message.CopyFrom(message)
        answer = await self._ask(client_id, command, command.verify_message_command)
        result = _RESULTS.get(answer.status.code)
        return ConsumeMessageDirectlyResult(consume_result=result, remark="from gRPC client")

    async def stack_trace(self, client_id: str) -> str:
        """Return the threads of a client as text.  Raises Refusal, TimeoutError."""
        command = wire.TelemetryCommand()
        answer = await self._ask(client_id, command, command.print_thread_stack_trace_command)
        if answer.status.code != wire.OK:
            raise Refusal(answer.status.code, answer.status.message or "the client shows no threads")
        return str(answer.thread_stack_trace.thread_stack_trace)

    async def _ask(
        self,
        client_id: str,
        command: wire.TelemetryCommand,
        numbered: wire.VerifyMessageCommand | wire.PrintThreadStackTraceCommand,
    ) -> wire.TelemetryCommand:
        client = self._clients.get(client_id)
        stream = None if client is None else client.stream
        if stream is None:
            raise Refusal(wire.BAD_REQUEST, f"client {client_id} has no telemetry stream")
        if len(self._waiting) >= _MAX_WAITING:
            raise Refusal(wire.TOO_MANY_REQUESTS, "too many commands wait for their clients")
        nonce = numbered.nonce = str(next(self._numbers))
        answer: asyncio.Future[wire.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = (client_id, answer)
        try:
            stream.send(command)
            async with asyncio.timeout(self._timeout_s):
                return await answer
        finally:
            del self._waiting[nonce]

    def answered(self, client_id: str, command: wire.TelemetryCommand) -> bool:
        """Take a client's answer.  Return whether this client was asked for it."""
        kind = command.WhichOneof("command")
        found = command.thread_stack_trace if kind == "thread_stack_trace" else command.verify_message_result
        asked, answer = self._waiting.get(found.nonce, (None, None))
        if asked != client_id or answer is None or answer.done():
            return False
        answer.set_result(command)
        return True
