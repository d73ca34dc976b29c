"""The cold area: messages so far behind the log's end that a read probably goes to the disk.

Source: RocketMQ 5.3.3, `DefaultMessageStore.checkInColdAreaByCommitOffset`, `CommitLog.ColdDataCheckService`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from store.config.store_config import StoreConfig
from store.disk.page_cache import PAGE_BYTES
from store.log.commit_log import CommitLog

_IS_CACHED: Final = 1


class ColdArea:
    """Test for cold messages.  For the owner thread only, except `scan`."""

    def __init__(self, config: StoreConfig, log: CommitLog, memory_bytes: int) -> None:
        self._log = log
        self._memory_bytes = memory_bytes
        # Offset of a segment -> one byte for each `_sample_bytes` of it: odd if the page there is cached.
        self._cached: dict[int, npt.NDArray[np.uint8]] = {}
        self._sample_bytes = 0
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Set the limits."""
        self._hot_bytes = self._memory_bytes * config.access_message_in_memory_hot_ratio // 100
        self._is_scanned = config.cold_data_flow_control_enable and config.cold_data_scan_enable
        sample_bytes = config.sample_steps * PAGE_BYTES
        if not self._is_scanned or sample_bytes != self._sample_bytes:
            self._cached = {}
        self._sample_bytes = sample_bytes

    def is_cold(self, physical_offset: int) -> bool:
        """Return whether a message is in the cold area, even if the page cache holds it."""
        return self._log.wrote_offset - physical_offset > self._hot_bytes

    def cold_bytes(self, entries: npt.NDArray[np.void]) -> int:
        """Return the bytes of those records of queue entries that are cold and not in the page cache."""
        offsets = entries["physical_offset"].astype(np.int64)
        cold = self._log.wrote_offset - offsets > self._hot_bytes
        if not cold.any():
            return 0
        if self._is_scanned:
            cold[cold] = [not self._may_be_cached(offset) for offset in offsets[cold].tolist()]
        return int(entries["size"][cold].sum())

    def _may_be_cached(self, offset: int) -> bool:
        """Return whether the last scan found the message's page in the page cache, or did not check it."""
        position = offset % self._log.segment_bytes
        cached = self._cached.get(offset - position)
        if cached is None:
            return True
        return bool(cached[position // self._sample_bytes] & _IS_CACHED)

    def scan(self) -> None:
        """Find the pages of the log in the page cache, if coldDataScanEnable is on.  For any thread."""
        if not self._is_scanned:
            return
        found = {}
        steps = self._sample_bytes // PAGE_BYTES
        for file in self._log.files_between(self._log.min_offset, self._log.wrote_offset):
            found[int(file.path.name)] = np.frombuffer(file.cached_pages(), np.uint8)[::steps]
        if self._is_scanned and steps == self._sample_bytes // PAGE_BYTES:
            self._cached = found
