"""Line of one worker to the other workers of its proxy, by way of their supervisor.

A message is one line of JSON: ``kind``, its fields, ``to`` (a worker's number; all others without it) and ``from``.
An edge file: it opens the socket that the supervisor passed on.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

Message = dict[str, Any]
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
# Above it messages are dropped: a worker that does not read must not hold up the others.
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


def encoded(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Link:
    """Open line of the worker `number`."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, number: int, descriptor: int) -> "Link":
        """Return the line over the socket that the supervisor passed on."""
        own = socket.socket(fileno=descriptor)
        own.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=own, limit=MAX_LINE_BYTES)
        return cls(number, reader, writer)

    def send(self, kind: str, *, to: int | None = None, **fields: Any) -> None:
        """Send a message to one worker or to all others."""
        line = encoded({"kind": kind, "to": to, **fields})
        if len(line) > MAX_LINE_BYTES or self._writer.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
            peer_lines.warning(logger, "", "event=worker_message_dropped kind=%s size=%d", kind, len(line))
            return
        self._writer.write(line)

    async def read(self, take: Callable[[Message], None]) -> None:
        """Give messages to `take` until the supervisor is gone."""
        while line := await self._reader.readline():
            take(json.loads(line))

    def close(self) -> None:
        """Close the line."""
        self._writer.close()
