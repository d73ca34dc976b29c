"""Owner of clients: what a client tells the connection that made it."""

import asyncio
from typing import Protocol

from sprocket.client.errors import ClientClosed, ClientError
from sprocket.remoting.client import OTHER_LOOP


class Closable(Protocol):
    """Part of a connection."""

    async def close(self) -> None: ...


class Owner(Protocol):
    """Connection that closes its parts when it closes."""

    def check_open(self) -> None:
        """Raise ClientClosed unless parts may open."""

    def joined(self, part: Closable, /) -> None:
        """Record that `part` is open."""

    def left(self, part: Closable, /) -> None:
        """Record that `part` has closed itself."""


class OpenParts:
    """Table of the open parts of one connection; it is their `Owner`."""

    def __init__(self) -> None:
        self._parts: set[Closable] = set()
        self.is_open = False
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it was opened
        self.is_closed = False

    def opened(self) -> None:
        """Let parts open from now on, in the running event loop."""
        self.is_open, self._loop = True, asyncio.get_running_loop()

    def check_open(self) -> None:
        """Raise ClientClosed unless parts may open, and ClientError in another event loop."""
        if self.is_closed:
            raise ClientClosed("the connection is closed; make a new one with sprocket.connect")
        if not self.is_open:
            raise ClientClosed("the connection is not open; use it inside `async with`, or call start()")
        if self._loop is not asyncio.get_running_loop():
            raise ClientError(OTHER_LOOP)

    def joined(self, part: Closable) -> None:
        """Record an open part.  Raises ClientClosed as `check_open`."""
        self.check_open()
        self._parts.add(part)

    def left(self, part: Closable) -> None:
        """Record that a part has closed itself."""
        self._parts.discard(part)

    def listed(self) -> list[Closable]:
        """Return the open parts."""
        return list(self._parts)


async def join(owner: Owner | None, part: Closable) -> None:
    """Record at `owner`, if there is one, that `part` is open.

    Raises ClientClosed, with `part` closed, if the connection was closed meanwhile.
    """
    try:
        if owner is not None:
            owner.joined(part)
    except ClientClosed:
        await part.close()
        raise
