"""Settings of the timer wheel: the supported timer keys of RocketMQ's `MessageStoreConfig`.

`store.config.store_config.StoreConfig` inherits them, because in RocketMQ they are keys of the store.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`, `TimerMessageStore`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting

# `TimerMessageStore.TIMER_WHEEL_TTL_DAY`, `DAY_SECS`, `TIMER_BLANK_SLOTS`
SLOTS_TOTAL: Final = 7 * 24 * 3600
BLANK_SLOTS: Final = 60
_MAX_INT: Final = (1 << 31) - 1
_PRECISIONS_MS: Final = (100, 200, 500, 1000)

_int = partial(int_setting, maximum=_MAX_INT)


@dataclass(frozen=True, kw_only=True)
class TimerConfig:
    """Settings of a store for the timer wheel."""

    timer_wheel_enable: bool = bool_setting(
        True, "Accept messages with a delay or a delivery time; if false, they are refused."
    )
    timer_precision_ms: int = _int(1000, "Width of a slot of the wheel; rounded to 100, 200, 500 or 1000.", 1, "ms")
    timer_max_delay_sec: int = _int(3 * 24 * 3600, "Messages with a longer delay are refused.", 1, "s", mutable=True)
    timer_roll_window_slot: int = _int(
        2 * 24 * 3600,
        "A message that is due after more slots than this is written to the CommitLog again before it is due, so "
        "that its file can expire; below 2: the whole wheel.",
        0,
    )
    timer_congest_num_each_slot: int = _int(
        _MAX_INT, "With more messages in a slot, some are refused; with twice as many, all.", 1, mutable=True
    )
    timer_stop_enqueue: bool = bool_setting(
        False, "Put no messages into the wheel; they wait in their topic.", mutable=True
    )
    timer_stop_dequeue: bool = bool_setting(False, "Do not deliver due messages.", mutable=True)
    timer_skip_unknown_error: bool = bool_setting(
        False,
        "Drop a due message that the store refuses for a reason other than load; if false, retry forever.",
        mutable=True,
    )
    timer_flush_interval_ms: int = _int(
        1000, "Interval between flushes of wheel, timer log, checkpoint and metrics.", 1, "ms", mutable=True
    )
    timer_progress_log_interval_ms: int = _int(
        10_000, "Interval between log lines on the progress.", 1, "ms", mutable=True
    )
    timer_enable_check_metrics: bool = bool_setting(
        True, "Recount the waiting messages of small topics daily.", mutable=True
    )
    timer_check_metrics_when: str = text_setting(
        "05", "Hours of the day, separated by ;, in which timerEnableCheckMetrics recounts.", mutable=True
    )
    timer_metric_small_threshold: int = _int(
        1_000_000, "A topic with fewer waiting messages is small.", 0, mutable=True
    )
    mapped_file_size_timer_log: int = _int(100 << 20, "Size of one file of the timer log.", 4096, "bytes")

    @property
    def slot_ms(self) -> int:
        """`timer_precision_ms` as RocketMQ rounds it: down to 100, 200, 500 or 1000, and up to 100."""
        return max(precision for precision in _PRECISIONS_MS if precision <= max(self.timer_precision_ms, 100))

    @property
    def roll_window_ms(self) -> int:
        """Maximum time ahead, ms, for which a message is put into the wheel."""
        max_slots = SLOTS_TOTAL - BLANK_SLOTS
        slots = self.timer_roll_window_slot
        return (slots if 2 <= slots <= max_slots else max_slots) * self.slot_ms
