"""Listening in two steps: bind a port, so that no other process can take it, and serve it later.

A server binds its ports before it opens its files.  Until it serves, connections are refused as if it did not run, so
clients try another server at once.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable


async def bound(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 128
) -> asyncio.Server:
    """Return a server that is bound and does not listen yet.  Raises OSError, also for an invalid port."""
    try:
        return await asyncio.get_running_loop().create_server(
            factory, host, port, backlog=backlog, reuse_address=True, start_serving=False
        )
    except OverflowError:
        raise OSError(f"{port} is no port, allowed are 0 to 65535") from None


async def serve(server: asyncio.Server) -> None:
    """Begin to accept connections.  Raises OSError if another process has begun to listen at the port; then closed."""
    try:
        await server.start_serving()
        # uvloop does not raise what listen(2) says, and closes the socket.
        if not all(_is_listening(one) for one in server.sockets):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    except OSError:
        server.close()
        raise


def _is_listening(one: socket.socket) -> bool:
    return one.fileno() >= 0 and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def reason_of(error: OSError) -> str:
    """Return the text of an error without the address that asyncio adds."""
    return os.strerror(error.errno) if error.errno else str(error)
