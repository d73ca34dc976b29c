"""Address and name of this machine: defaults of `brokerIP1`, `brokerIP2` and `brokerName`."""

import asyncio
import socket
from functools import cache

from broker.message_id import host_bytes
from sprocket.common.errors import ConfigError

# A documentation address (RFC 5737): the default route covers it, and nothing is sent to it.
_PROBE = ("192.0.2.1", 9)


@cache
def local_address() -> str:
    """Return this machine's IPv4 address on its default route; 127.0.0.1 without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBE)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@cache
def host_name() -> str:
    """Return the name of this machine; DEFAULT_BROKER if it has none."""
    return socket.gethostname() or "DEFAULT_BROKER"


async def resolved(host: str) -> str:
    """Resolve brokerIP1, because records hold addresses.  Raises ConfigError for an unknown host name."""
    try:
        host_bytes(host, 0)
    except ValueError:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
        except OSError as error:
            raise ConfigError(f"brokerIP1 = {host!r}: {error.strerror or error}") from None
        return str(found[0][4][0])
    return host
