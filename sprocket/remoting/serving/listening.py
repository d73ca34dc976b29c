"""Listening in two steps: bind a port, so that no other process can take it, and serve it later.

A server binds its ports before it opens its files.  Until it serves, connections are refused as if it did not run, so
clients try another server at once.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.common.everywhere import EVERYWHERE

_BOTH_FAMILIES: Final = ("0.0.0.0", "::")
# Another process may take a port that was free for both families a moment ago.
_TRIES: Final = 16


class CannotListen(ConfigError):
    """A port cannot be listened on; `setting` names what chooses another one."""

    def __init__(self, host: str, port: int, error: OSError, setting: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {reason_of(error)}. "
            f"Stop what uses the port, or choose another one with {setting}."
        )
        self.port = port
        self._where = host, error
        self.setting = setting

    def named(self, setting: str) -> "CannotListen":
        """Return the same error with another name of the setting, such as an option of a command."""
        host, error = self._where
        return CannotListen(host, self.port, error, setting)


async def bound(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 128, reuse_port: bool = False
) -> asyncio.Server:
    """Return a server that is bound and does not listen yet.  Raises OSError, also for an invalid port.

    A host of `EVERYWHERE` means all addresses, of IPv4 and, where the machine has it, of IPv6.
    With `reuse_port` other processes of the same user may bind the port too, and share its connections.
    """
    is_everywhere = host in EVERYWHERE and _has_ipv6()
    backlog = min(backlog, DescriptorReserve().burst)
    tries = _TRIES if is_everywhere and not port else 1
    for left in reversed(range(tries)):
        try:
            return await asyncio.get_running_loop().create_server(
                factory, _BOTH_FAMILIES if is_everywhere else host, port or (_free_port() if is_everywhere else 0),
                backlog=backlog, reuse_address=True, reuse_port=reuse_port, start_serving=False,
            )  # fmt: skip
        except OverflowError:
            raise OSError(f"{port} is no port, allowed are 0 to 65535") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def _free_port() -> int:
    """Return a port that is free for both families at this moment."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as probe:
        return int(probe.getsockname()[1])


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


class KeptPort:
    """TCP port that stays bound, and listens once it was served, while those who serve it change.

    While nobody serves it, a connection is closed at once.
    """

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._factory: Callable[[], asyncio.BaseProtocol] = _Closing
        self._is_listening = False

    async def bind(self, host: str, port: int) -> int:
        """Bind the port, unless that was done before, and return it.  Raises OSError."""
        if self._server is None:
            self._server = await bound(lambda: self._factory(), host, port)
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def serve(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Serve connections with protocols of `factory`, in place of the one before.  Raises OSError as `serve`."""
        assert self._server is not None, "bind comes first"
        if not self._is_listening:
            await serve(self._server)
            self._is_listening = True
        self._factory = factory

    def leave(self) -> None:
        """Serve no new connection."""
        self._factory = _Closing

    def close(self) -> None:
        """Release the port."""
        self.leave()
        server, self._server, self._is_listening = self._server, None, False
        if server is not None:
            server.close()


class _Closing(asyncio.Protocol):
    """A connection to a port that nobody serves now."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _is_listening(one: socket.socket) -> bool:
    return one.fileno() >= 0 and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def reason_of(error: OSError) -> str:
    """Return the text of an error without the address that asyncio adds."""
    return os.strerror(error.errno) if error.errno else str(error)
