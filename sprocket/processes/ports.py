"""Whether the ports that servers are about to listen on are free.

An edge file: it binds sockets, and closes them again.
"""

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sprocket.common.errors import SprocketError


class PortTaken(SprocketError):
    """Somebody listens on ports that servers were to have; nothing was started."""


@dataclass(frozen=True)
class WantedPort:
    """A port of the server `name`, which its configuration names by `key`."""

    name: str
    key: str
    host: str
    port: int


def refuse_taken(wanted: Iterable[WantedPort], advice: str) -> None:
    """Raises PortTaken, which names every port that is not free and ends with `advice`."""
    taken = [each for each in wanted if _is_taken(each.host, each.port)]
    if taken:
        listed = "; ".join(f"port {each.port} of {each.name} ({each.key})" for each in taken)
        raise PortTaken(f"taken on {taken[0].host}: {listed}. Nothing was started. {advice}")


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of an earlier one that are not forgotten yet do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            # The server itself says what else is wrong with an address.
            return error.errno == errno.EADDRINUSE
    return False
