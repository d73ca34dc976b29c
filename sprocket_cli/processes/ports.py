"""Check whether the ports of servers are free before the servers start.

An edge file: it binds sockets and closes them.
"""

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sprocket.common.errors import SprocketError


class PortTaken(SprocketError):
    """Ports of servers are in use; nothing was started."""


@dataclass(frozen=True)
class WantedPort:
    """Port of the server `name`, set by the configuration key `key`."""

    name: str
    key: str
    host: str
    port: int


def refuse_taken(wanted: Iterable[WantedPort], advice: str) -> None:
    """Raise PortTaken if ports are in use; its text lists them and ends with `advice`."""
    taken = [each for each in wanted if _is_taken(each.host, each.port)]
    if taken:
        listed = "; ".join(f"port {each.port} of {each.name} ({each.key})" for each in taken)
        raise PortTaken(f"taken on {taken[0].host}: {listed}. Nothing was started. {advice}")


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: ignore connections of an earlier server in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            # The server itself reports other errors of an address.
            return error.errno == errno.EADDRINUSE
    return False
