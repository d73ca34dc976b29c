"""The address and name of this machine: defaults of `brokerIP1`, `brokerIP2` and `brokerName`."""

import socket
from functools import cache

# A documentation address (RFC 5737): routable by the default route, and nothing is sent to it.
_PROBE = ("192.0.2.1", 9)


@cache
def local_address() -> str:
    """The IPv4 address that this machine's default route goes out from; 127.0.0.1 without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBE)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@cache
def host_name() -> str:
    """The name of this machine; DEFAULT_BROKER if it has none."""
    return socket.gethostname() or "DEFAULT_BROKER"
