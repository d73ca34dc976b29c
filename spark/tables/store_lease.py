"""Lease of a table on the log that it does not have yet, against expiry: see `store.retention.leases`."""

import hashlib
import logging
from pathlib import Path
from typing import Final

from spark.files.segment_lease import wants_lease
from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.retention.leases import Leases

logger = logging.getLogger(__name__)

_OWNER: Final = "sprocket-table"
# Time after which the lease of a killed process ends.
_DURATION_MS: Final = 30 * 60_000


class StoreLease:
    """Lease of one table on one store.  A store without a broker gets none, because nothing expires there."""

    def __init__(self, root: Path, table: Path, clock: Clock) -> None:
        self._clock = clock
        self._root = root
        self._name = f"table-{hashlib.blake2b(str(table.absolute()).encode(), digest_size=8).hexdigest()}"
        self._held_at_s = float("-inf")
        self._is_held = False

    def hold(self, from_offset: int) -> None:
        """Keep the log from physical offset `from_offset` on; log a warning on failure."""
        now = self._clock.monotonic()
        if now - self._held_at_s < _DURATION_MS / 2000 or not wants_lease(self._root):
            return
        self._held_at_s = now
        try:
            Leases(self._root).acquire(self._name, _OWNER, from_offset, _DURATION_MS)
            self._is_held = True
        except (StoreError, OSError) as error:
            logger.warning("event=no_lease store=%s reason=%r", self._root, str(error))

    def release(self) -> None:
        """Release the lease."""
        if not self._is_held:
            return
        self._is_held = False
        try:
            Leases(self._root).release(self._name, _OWNER)
        except (StoreError, OSError) as error:
            logger.warning("event=lease_left store=%s reason=%r", self._root, str(error))
