"""Free ports for servers under test."""

import os
import random
import socket
from collections.abc import Iterable

# In the order of taking.  The oldest are forgotten: their servers have bound them by now, or are gone.
_TAKEN: dict[int, None] = {}
# A cluster needs some thirty of the few thousand that a worker of pytest-xdist has.
_MAX_TAKEN = 300
_ALL = range(20_000, 32_000)  # below the ephemeral range, so that outgoing connections do not take them
# Up to eight workers of pytest-xdist have a part each: a port is free until a server binds it, some milliseconds later.
_PARTS = min(8, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_SHARE = len(_ALL) // _PARTS
_LOW = _ALL.start + _SHARE * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PARTS)
_HIGH = _LOW + _SHARE


def free_broker_port() -> int:
    """A port p with p - 2 (fast listener) and p + 1 (replication) free beside it."""
    for _ in range(1000):
        port = random.randrange(_LOW, _HIGH)
        wanted = range(port - 2, port + 2)
        if _take(wanted):
            return port
    raise OSError("no four free ports in a row")


def free_port_base(brokers: int = 6) -> int:
    """For `sprocket cluster up --port-base`: ports of 3 name servers, controllers, 2 proxies and brokers are free."""
    for _ in range(1000):
        base = random.randrange(_LOW + 1800, _HIGH - 1200)
        firsts = [base + 1035 + 10 * index for index in range(brokers)]
        wanted = {
            *range(base, base + 3),
            *range(base + 100, base + 106),
            *(base - 1795 + 10 * index + more for index in range(2) for more in (-1, 0)),
            *(port + more for port in firsts for more in (-2, 0, 1)),
        }
        if _take(wanted):
            return base
    raise OSError("no free ports for a cluster")


def _take(wanted: Iterable[int]) -> bool:
    """Take ports; return whether all of them were free."""
    if any(one in _TAKEN or not _is_free(one) for one in wanted):
        return False
    _TAKEN.update(dict.fromkeys(wanted))
    while len(_TAKEN) > _MAX_TAKEN:
        del _TAKEN[next(iter(_TAKEN))]
    return True


def free_port() -> int:
    """Return a free port that was not returned before."""
    return free_broker_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
