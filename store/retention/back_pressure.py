"""When appends are refused, for which cause, and when to try again.

Six causes.  `disk_full`: the disk is above diskSpaceWarningLevelRatio; the store does not break when it fills up, but
an operator needs room to act in.  `flush_behind`: too much is written and not on the disk yet.  `slow_flush`: one flush
takes too long, so the disk is in trouble.  `waiting`: too much memory is held by messages that wait for their flush or
for slaves.  `page_cache_busy`: a write took so long that what came meanwhile is better sent elsewhere.
`replicas_not_enough`: with SYNC_MASTER fewer replicas are in sync than minInSyncReplicas.

The first is answered SERVICE_NOT_AVAILABLE, the last SYSTEM_ERROR, the others SYSTEM_BUSY; producers try another broker
on both.  All heal by themselves.  Source: RocketMQ 5.3.3, `HookUtils.checkBeforePutMessage`, `RunningFlags`,
`isOSPageCacheBusy`, `BrokerFastFailure`.
"""

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull, ReplicasNotEnough, StoreBusy, StoreError
from store.config.store_config import FlushDiskType, StoreConfig
from store.retention.rules import DiskUse, Watermarks

_log = logging.getLogger(__name__)
# How long sends are refused after a write that was too slow: waitTimeMillsInSendQueue of RocketMQ.
_BUSY_S: Final = 0.2
_LEAST_RETRY_MS: Final = 50
_MOST_RETRY_MS: Final = 5_000
_REFUSE_ALL: Final = -1


class Cause(StrEnum):
    """Why an append is refused."""

    DISK_FULL = "disk_full"
    FLUSH_BEHIND = "flush_behind"
    SLOW_FLUSH = "slow_flush"
    WAITING = "waiting"
    PAGE_CACHE_BUSY = "page_cache_busy"
    REPLICAS_NOT_ENOUGH = "replicas_not_enough"


class BackPressure:
    """Lives in the owner thread.

    Whoever appends compares what is unflushed with `most_unflushed_bytes`, and what waits with
    `most_waiting_bytes`; only at or above one of them it asks for the `refusal`.
    """

    def __init__(
        self, config: StoreConfig, clock: Clock, flushing_s: Callable[[], float], on_no_space: Callable[[], None]
    ) -> None:
        self._clock = clock
        # How long the flush that runs now takes so far; 0 without one.
        self._flushing_s = flushing_s
        self._use = DiskUse(0.0, 0.0)
        self._disk_full = False
        self._flush_s = self._last_flush_s = 0.0
        self._busy_until_s = 0.0
        self._slowest_s = 0.0
        self._lacks_replicas = False
        # Causes that refused an append and whose end was not logged yet.
        self._logged: set[Cause] = set()
        # Messages refused, by cause.
        self.refused: Counter[Cause] = Counter()
        # Called when the file system has no room: whoever looks at the disk should do so now.
        self._on_no_space = on_no_space
        # brokerFastFailureEnable: without it a slow disk makes sends wait instead.
        self.is_fast_failing = True
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Take a changed configuration; it holds from now on."""
        self._config = config
        self.most_waiting_bytes = config.max_waiting_bytes
        # With SYNC_FLUSH a send that waits longer is told FLUSH_DISK_TIMEOUT: then rather do not take it.
        is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        most_ms = min(config.max_flush_time, config.sync_flush_timeout) if is_sync else config.max_flush_time
        self._most_flush_s = most_ms / 1000
        self._settle()

    def _settle(self) -> None:
        """One number says it all to whoever appends."""
        refuses = self._disk_full or self._lacks_replicas or self._is_flush_slow() or self._busy_until_s > 0
        self.most_unflushed_bytes = _REFUSE_ALL if refuses else self._config.max_unflushed_bytes

    def _is_flush_slow(self) -> bool:
        return self.is_fast_failing and self._flush_s > self._most_flush_s

    # What is seen

    def looked(self, use: DiskUse, last_flush_s: float, unflushed_bytes: int, waiting_bytes: int) -> None:
        """About once a second: how full the disk is, how long the last flush took, what waits."""
        self._use, self._flush_s, self._last_flush_s = use, self._flushing_s(), last_flush_s
        self._disk_full = Watermarks.of(self._config).refuses(use, self._disk_full)
        if self._busy_until_s and self._clock.monotonic() >= self._busy_until_s:
            self._busy_until_s = 0.0
        self._settle()
        for cause in self._logged - {self._cause(unflushed_bytes, waiting_bytes)}:
            self._logged.discard(cause)
            _log.warning("state=accepting cause=%s refused=%d", cause.value, self.refused[cause])

    def append_was_slow(self, seconds: float) -> None:
        """An append took `seconds`; called only for those that took a millisecond or more."""
        if self.is_fast_failing and seconds * 1000 > self._config.os_page_cache_busy_time_out_mills:
            self._slowest_s = seconds
            self._busy_until_s = self._clock.monotonic() + _BUSY_S
            self._settle()

    def replicas_changed(self, *, is_refusing: bool) -> None:
        """Too few replicas are in sync to take anything, or no longer too few."""
        if is_refusing != self._lacks_replicas:
            self._lacks_replicas = is_refusing
            self._settle()

    # What is refused

    def refusal(self, messages: int, unflushed_bytes: int, waiting_bytes: int) -> StoreError | None:
        """The error for an append of `messages`; None if all is well again."""
        if self._busy_until_s and self._clock.monotonic() >= self._busy_until_s:
            self._busy_until_s = 0.0
            self._settle()
        if self._is_flush_slow():
            # It may have ended since the last look.
            self._flush_s = self._flushing_s()
            self._settle()
        cause = self._cause(unflushed_bytes, waiting_bytes)
        if cause is None:
            return None
        self.refused[cause] += messages
        text, retry_ms = self._reason(cause, unflushed_bytes, waiting_bytes)
        if cause not in self._logged:
            self._logged.add(cause)
            _log.warning("state=refusing cause=%s reason=%r retry_ms=%d", cause.value, text, retry_ms)
        remark = f"{text}; retry after {retry_ms} ms"
        if cause is Cause.REPLICAS_NOT_ENOUGH:
            return ReplicasNotEnough(text)
        return DiskFull(remark) if cause is Cause.DISK_FULL else StoreBusy(remark)

    def no_space(self, error: DiskFull, messages: int) -> DiskFull:
        """What to raise when the file system itself has no room left: nothing was written."""
        self.refused[Cause.DISK_FULL] += messages
        self._on_no_space()
        if Cause.DISK_FULL not in self._logged:
            self._logged.add(Cause.DISK_FULL)
            _log.warning("state=refusing cause=no_space reason=%r", str(error))
        # The figures are those of the last look, up to a second ago.
        used = f"CL {self._use.log:.1%}, CQ {self._use.queues:.1%} were used at the last look"
        return DiskFull(
            f"the broker's disk is full: no space left ({used}); retry after {self._config.clean_resource_interval} ms"
        )

    def _cause(self, unflushed_bytes: int, waiting_bytes: int) -> Cause | None:
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

    def _reason(self, cause: Cause, unflushed_bytes: int, waiting_bytes: int) -> tuple[str, int]:
        """In words with figures, and ms after which to try again."""
        config = self._config
        flush_ms = min(max(round(self._last_flush_s * 1000), _LEAST_RETRY_MS), _MOST_RETRY_MS)
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
            return f"{text} {self._most_flush_s:.1f} (maxFlushTime, syncFlushTimeout)", 1_000
        if cause is Cause.FLUSH_BEHIND:
            text = f"the broker's flush is behind: {unflushed_bytes} bytes are unflushed, allowed are"
            return f"{text} {config.max_unflushed_bytes} (maxUnflushedBytes)", flush_ms
        text = f"too many messages wait for their flush or for slaves: they hold {waiting_bytes} bytes, allowed are"
        return f"{text} {config.max_waiting_bytes} (maxWaitingBytes)", flush_ms

    def runtime_info(self) -> dict[str, str]:
        """Figures of GET_BROKER_RUNTIME_INFO: of RocketMQ's names one, and messages refused by cause."""
        info = {"pageCacheLockTimeMills": str(round(self._flush_s * 1000))}
        for cause in Cause:
            info[f"putMessageRefused_{cause.value}"] = str(self.refused[cause])
        return info
