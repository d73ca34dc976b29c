"""Leases that keep the segments of a running query from expiring: see `store.retention.leases`.

A query takes a lease when it is planned, on everything from its first segment on, and its tasks renew it while they
read.  Spark does not report the end of a query, so the lease expires by itself.  Queries that begin at the same segment
share one, which keeps the number of leases small.  Only a store with a broker of Sprocket gets one: RocketMQ's ignores
leases.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import StoreError
from store.layout import file_name
from store.retention.leases import Leases

logger = logging.getLogger(__name__)

_OWNER: Final = "spark"
_CLOCK: Final[Clock] = SystemClock()


@dataclass(frozen=True)
class SegmentLease:
    """Lease that asks the store at `root` to keep its log from physical offset `from_offset` on."""

    root: Path
    from_offset: int
    duration_ms: int

    def hold(self) -> bool:
        """Take the lease, or renew it after half its time.  Log a warning and return False if that fails."""
        name = f"spark-{file_name(self.from_offset)}"
        leases = Leases(self.root)
        try:
            held = leases.list().get(name)
            if held is None or held.deadline_ms - _CLOCK.wall_ms() < self.duration_ms / 2:
                leases.acquire(name, _OWNER, self.from_offset, self.duration_ms)
        except (StoreError, OSError) as error:
            reason = f"{error}: segments may expire while they are read"
            logger.warning("event=no_lease store=%s from=%d reason=%r", self.root, self.from_offset, reason)
            return False
        return True


def wants_lease(root: Path) -> bool:
    """Return whether a broker of Sprocket uses the store, or was killed."""
    return (root / "flushed").exists() and (root / "abort").exists()


class LeaseKeeper:
    """Renewal of leases by a task; `keep` may be called often."""

    def __init__(self, leases: Iterable[SegmentLease]) -> None:
        self._leases = list(leases)
        self._due_s = 0.0

    def keep(self) -> None:
        """Renew the leases that are due."""
        if self._leases and _CLOCK.monotonic() >= self._due_s:
            for lease in self._leases:
                lease.hold()  # after a failure, the next call may renew it before it expires
            self._due_s = _CLOCK.monotonic() + min(lease.duration_ms for lease in self._leases) / 4000
