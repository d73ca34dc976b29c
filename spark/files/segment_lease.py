"""Leases that keep the segments of a running query from expiring: see `store.retention.leases`.

A query takes one when it is planned, on everything from its first segment on, and its tasks renew it while they read.
Nobody sees the end of a query, so the lease ends by itself.  Queries that begin at the same segment share one, which
keeps their number small.  Only a store that a broker of this project uses gets one; nobody else would look at it.
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
    """The store at `root` is asked to keep its log from physical offset `from_offset` on, each time for so long."""

    root: Path
    from_offset: int
    duration_ms: int

    def hold(self) -> bool:
        """Take the lease, or renew it once half of it is over.  False, and a warning, if it cannot be had."""
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
    """Whether a broker of this project is using the store, or was killed."""
    return (root / "flushed").exists() and (root / "abort").exists()


class LeaseKeeper:
    """Renews leases from within a task.  `keep` may be called often."""

    def __init__(self, leases: Iterable[SegmentLease]) -> None:
        self._leases = list(leases)
        self._due_s = 0.0

    def keep(self) -> None:
        """Renew what is due."""
        if self._leases and _CLOCK.monotonic() >= self._due_s:
            for lease in self._leases:
                lease.hold()  # one that cannot be had now may be had the next time, before it has ended
            self._due_s = _CLOCK.monotonic() + min(lease.duration_ms for lease in self._leases) / 4000
