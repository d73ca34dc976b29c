"""Back-pressure: when appends are refused, for which cause, and when to retry.

There are seven causes:

- `disk_full`: the disk is above diskSpaceWarningLevelRatio.  A full disk does not break the store, but an operator
  needs room to act.
- `no_descriptor`: no descriptor is left to open a file of the log or of a queue with.
- `flush_behind`: too many bytes are written but not yet on the disk.
- `slow_flush`: one flush takes too long, so the disk is in trouble.
- `waiting`: messages that wait for their flush or for slaves hold too much memory.
- `page_cache_busy`: a write took longer than osPageCacheBusyTimeOutMills; new messages should go to another broker.
- `replicas_not_enough`: with SYNC_MASTER fewer replicas are in sync than minInSyncReplicas.

The first two are answered SERVICE_NOT_AVAILABLE, the last SYSTEM_ERROR, the others SYSTEM_BUSY.  Producers then try
another broker.  All causes end without an operator.  Source: RocketMQ 5.3.3,
`HookUtils.checkBeforePutMessage`, `RunningFlags`, `isOSPageCacheBusy`, `BrokerFastFailure`.
"""

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull, NoDescriptor, ReplicasNotEnough, StoreBusy, StoreError
from sprocket.common.figures import Declared, Figure, FigureFamily
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from store.config.store_config import FlushDiskType, StoreConfig
from store.retention.rules import DiskUse, Watermarks

_log = logging.getLogger(__name__)
# Refuse sends for this long after a write that was too slow: waitTimeMillsInSendQueue of RocketMQ.
_BUSY_S: Final = 0.2
_MIN_RETRY_MS: Final = 50
_MAX_RETRY_MS: Final = 5_000
_REFUSE_ALL: Final = -1


class Cause(StrEnum):
    """Cause of a refused append; `Reason` has each of them under the same name."""

    DISK_FULL = "disk_full"
    NO_DESCRIPTOR = "no_descriptor"
    FLUSH_BEHIND = "flush_behind"
    SLOW_FLUSH = "slow_flush"
    WAITING = "waiting"
    PAGE_CACHE_BUSY = "page_cache_busy"
    REPLICAS_NOT_ENOUGH = "replicas_not_enough"


class BackPressure:
    """Back-pressure of one store.  It belongs to the owner thread.

    The caller of an append compares the unflushed bytes with `max_unflushed_bytes` and the waiting bytes with
    `max_waiting_bytes`.  Only at or above one of them it calls `refusal`.
    """

    def __init__(
        self, config: StoreConfig, clock: Clock, flushing_s: Callable[[], float], on_no_space: Callable[[], None]
    ) -> None:
        self._clock = clock
        # Returns the seconds that the running flush has taken so far; 0 without one.
        self._flushing_s = flushing_s
        self._use = DiskUse(0.0, 0.0)
        self._disk_full = False
        self._flush_s = self._last_flush_s = 0.0
        self._busy_until_s = 0.0
        self._slowest_s = 0.0
        self._lacks_replicas = False
        # Causes that refused an append and whose end is not logged yet.
        self._logged: set[Cause] = set()
        # Messages refused, by cause.
        self.refused: Counter[Cause] = Counter()
        # Called when the file system has no room: the disk should be checked now.
        self._on_no_space = on_no_space
        # brokerFastFailureEnable: if False, a slow disk makes sends wait instead.
        self._is_fast_failing = True
        self.configure(config)

    def fail_fast(self, is_enabled: bool) -> None:
        """Apply brokerFastFailureEnable."""
        self._is_fast_failing = is_enabled

    def configure(self, config: StoreConfig) -> None:
        """Apply a changed configuration."""
        self._config = config
        self.max_waiting_bytes = config.max_waiting_bytes
        # With SYNC_FLUSH a send that waits longer gets FLUSH_DISK_TIMEOUT.  It is better to refuse it.
        is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        max_ms = min(config.max_flush_time, config.sync_flush_timeout) if is_sync else config.max_flush_time
        self._max_flush_s = max_ms / 1000
        self._set_limit()

    def _set_limit(self) -> None:
        """Set the limit that callers compare with: the configured one, or one that refuses all appends."""
        refuses = self._disk_full or self._lacks_replicas or self._is_flush_slow() or self._busy_until_s > 0
        self.max_unflushed_bytes = _REFUSE_ALL if refuses else self._config.max_unflushed_bytes

    def _is_flush_slow(self) -> bool:
        return self._is_fast_failing and self._flush_s > self._max_flush_s

    # Observations

    def observe(self, use: DiskUse, last_flush_s: float, unflushed_bytes: int, waiting_bytes: int) -> None:
        """Take the figures of the last second: use of the disk, time of the last flush, bytes that wait."""
        self._use, self._flush_s, self._last_flush_s = use, self._flushing_s(), last_flush_s
        self._disk_full = Watermarks.of(self._config).refuses(use, self._disk_full)
        if self._busy_until_s and self._clock.monotonic() >= self._busy_until_s:
            self._busy_until_s = 0.0
        self._set_limit()
        for cause in self._logged - {self.cause(unflushed_bytes, waiting_bytes)}:
            self._logged.discard(cause)
            peer_lines.warning(
                _log, "", "event=back_pressure state=accepting cause=%s refused=%d", cause.value, self.refused[cause]
            )

    def append_was_slow(self, seconds: float) -> None:
        """Note that an append took `seconds`.  Called only for a millisecond or more."""
        if self._is_fast_failing and seconds * 1000 > self._config.os_page_cache_busy_time_out_mills:
            self._slowest_s = seconds
            self._busy_until_s = self._clock.monotonic() + _BUSY_S
            self._set_limit()

    def replicas_changed(self, *, is_refusing: bool) -> None:
        """Note whether too few replicas are in sync to accept messages."""
        if is_refusing != self._lacks_replicas:
            self._lacks_replicas = is_refusing
            self._set_limit()

    # Refusals

    def cause(self, unflushed_bytes: int, waiting_bytes: int) -> Cause | None:
        """Return the cause for which appends are refused; None if they are not."""
        if self._disk_full:
            return Cause.DISK_FULL
        if self._lacks_replicas:
            return Cause.REPLICAS_NOT_ENOUGH
        if self._busy_until_s > 0:
            return Cause.PAGE_CACHE_BUSY
        if self._is_flush_slow():
            return Cause.SLOW_FLUSH
        if unflushed_bytes >= self._config.max_unflushed_bytes:
            return Cause.FLUSH_BEHIND
        return Cause.WAITING if waiting_bytes >= self._config.max_waiting_bytes else None

    def refusal(self, messages: int, unflushed_bytes: int, waiting_bytes: int) -> StoreError | None:
        """Return the error for an append of `messages`; None if no cause holds any more."""
        if self._busy_until_s and self._clock.monotonic() >= self._busy_until_s:
            self._busy_until_s = 0.0
            self._set_limit()
        if self._is_flush_slow():
            # The slow flush may have ended since the last check.
            self._flush_s = self._flushing_s()
            self._set_limit()
        cause = self.cause(unflushed_bytes, waiting_bytes)
        if cause is None:
            return None
        self.refused[cause] += messages
        text, retry_ms = self._reason(cause, unflushed_bytes, waiting_bytes)
        if cause not in self._logged:
            self._logged.add(cause)
            peer_lines.warning(
                _log, "", "event=back_pressure state=refusing cause=%s reason=%r retry_ms=%d", cause.value, text,
                retry_ms,
            )  # fmt: skip
        remark = f"{text}; retry after {retry_ms} ms"
        if cause is Cause.REPLICAS_NOT_ENOUGH:
            return ReplicasNotEnough(text)
        return DiskFull(remark) if cause is Cause.DISK_FULL else StoreBusy(remark, Reason[cause.name])

    def no_space(self, error: DiskFull, messages: int) -> DiskFull:
        """Return the error to raise when the system has no room, or no descriptor, left.  Nothing was written.

        The log names the file; peers must not see its path.
        """
        cause = Cause.NO_DESCRIPTOR if isinstance(error, NoDescriptor) else Cause.DISK_FULL
        self.refused[cause] += messages
        if cause not in self._logged:
            self._logged.add(cause)
            peer_lines.warning(
                _log, "", "event=back_pressure state=refusing cause=%s reason=%r", cause.value, str(error)
            )
        if cause is Cause.NO_DESCRIPTOR:
            return NoDescriptor(
                "the broker has no descriptor left to open a file with: close connections, or raise its limit of open"
                f" files (ulimit -n); retry after {_MAX_RETRY_MS} ms"
            )
        self._on_no_space()
        # The figures are up to a second old.
        used = f"CL {self._use.log:.1%}, CQ {self._use.queues:.1%} were used at the last check"
        return DiskFull(
            f"the broker's disk is full: no space left ({used}); retry after {self._config.clean_resource_interval} ms"
        )

    def _reason(self, cause: Cause, unflushed_bytes: int, waiting_bytes: int) -> tuple[str, int]:
        """Return the reason with its figures, and after how many ms to retry."""
        config = self._config
        flush_ms = min(max(round(self._last_flush_s * 1000), _MIN_RETRY_MS), _MAX_RETRY_MS)
        if cause is Cause.DISK_FULL:
            limit = Watermarks.of(config).warning
            text = (
                f"the broker's disk is full: CL {self._use.log:.1%}, CQ {self._use.queues:.1%} used, allowed is"
                f" {limit:.1%} (diskSpaceWarningLevelRatio)"
            )
            return text, config.clean_resource_interval
        if cause is Cause.REPLICAS_NOT_ENOUGH:
            return "in-sync replicas not enough", 1_000
        if cause is Cause.PAGE_CACHE_BUSY:
            left_ms = max(1, round((self._busy_until_s - self._clock.monotonic()) * 1000))
            limit_ms = config.os_page_cache_busy_time_out_mills
            took = f"a write took {self._slowest_s * 1000:.0f} ms, allowed are {limit_ms} (osPageCacheBusyTimeOutMills)"
            return f"the broker's page cache is busy: {took}", left_ms
        if cause is Cause.SLOW_FLUSH:
            text = f"the broker's disk is slow: a flush has taken {self._flush_s:.1f} s, allowed are"
            return f"{text} {self._max_flush_s:.1f} (maxFlushTime, syncFlushTimeout)", 1_000
        if cause is Cause.FLUSH_BEHIND:
            text = f"the broker's flush is behind: {unflushed_bytes} bytes are unflushed, allowed are"
            return f"{text} {config.max_unflushed_bytes} (maxUnflushedBytes)", flush_ms
        text = f"too many messages wait for their flush or for slaves: they hold {waiting_bytes} bytes, allowed are"
        return f"{text} {config.max_waiting_bytes} (maxWaitingBytes)", flush_ms

    def figures(self) -> list[Declared]:
        """Return the figures: one of RocketMQ's, and the messages refused by cause."""
        return [
            Figure(
                "pageCacheLockTimeMills",
                "time that the running flush has taken, ms",
                lambda: round(self._flush_s * 1000),
            ),
            FigureFamily(
                "putMessageRefused_<cause>",
                "messages that the store refused, for each cause: " + ", ".join(f"`{cause.value}`" for cause in Cause),
                lambda: {cause.value: self.refused[cause] for cause in Cause},
            ),
        ]
