"""The proxy's side of one telemetry stream: commands to a client.

Nothing runs while there is nothing to write, so that thousands of idle streams cost little.  A client that does not
read loses the stream: it opens another, and gets its settings again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire

logger = logging.getLogger(__name__)

# Commands that wait for a client that does not read.
MAX_WAITING: Final = 64


class TelemetryStream:
    """Stream to the client `client_id`; `write` writes one command, `close` ends the call and is called once."""

    __slots__ = (
        "__weakref__", "_close", "_has_ended", "_timeout_s", "_waiting", "_write", "_writing", "client_id", "is_closed",
    )  # fmt: skip

    def __init__(
        self,
        client_id: str,
        write: Callable[[wire.TelemetryCommand], Awaitable[None]],
        close: Callable[[], object],
        timeout_s: float,
    ) -> None:
        self.client_id = client_id
        self._write = write
        self._close = close
        self._timeout_s = timeout_s
        # Empty ones have room for 64 commands, so an idle stream has none.
        self._waiting: deque[wire.TelemetryCommand] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._has_ended = False
        self.is_closed = False

    def send(self, command: wire.TelemetryCommand, max_waiting: int = MAX_WAITING) -> bool:
        """Write `command` soon.  Return False, and end the stream, if too many wait."""
        if self._waiting is None:
            self._waiting = deque()
        elif len(self._waiting) >= max_waiting:
            peer_lines.warning(
                logger, self.client_id, "event=telemetry_unread client=%r waiting=%d", self.client_id,
                len(self._waiting),
            )  # fmt: skip
            self.close()
            return False
        self._waiting.append(command)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all(self._waiting))
        return True

    def close(self) -> None:
        """End the stream."""
        if self._waiting is not None:
            self._waiting.clear()
        if not self.is_closed and not self._has_ended:
            self.is_closed = True
            self._close()

    async def written(self) -> None:
        """Wait until nothing is left to write: a client that sends no more still reads the answers."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def ended(self) -> None:
        """Stop writing, because the call has ended."""
        self._has_ended = True
        if self._writing is not None:
            self._writing.cancel()

    async def _write_all(self, waiting: deque[wire.TelemetryCommand]) -> None:
        try:
            while waiting:
                command = waiting.popleft()
                async with asyncio.timeout(self._timeout_s):
                    await self._write(command)
        except Exception as error:
            # gRPC raises its own errors for a call that has ended.
            peer_lines.info(
                logger, self.client_id, "event=telemetry_write_failed client=%r reason=%r", self.client_id, str(error)
            )
            self.close()
        finally:
            self._writing = self._waiting = None
