"""Conversion of a message with a delivery time into a message of the timer topic.

A producer sets a delay (TIMER_DELAY_SEC, TIMER_DELAY_MS) or a time (TIMER_DELIVER_MS).  The message goes to queue 0 of
rmq_sys_wheel_timer, with the end of its delay in TIMER_OUT_MS and its real topic and queue in REAL_TOPIC and REAL_QID.
Source: RocketMQ 5.3.3, `HookUtils.handleScheduleMessage`, `transformTimerMessage`,
`SendMessageProcessor.handlePutMessageResult`, `TimerMessageStore.isReject`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.config.live_config import LiveConfig
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.metrics.distribution import Distributions
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.timer_config import TimerConfig

_HOUR_S: Final = 3_600
# `DefaultStoreMetricsManager.getMetricsView`: 1 and 10 minutes, 1 and 12 hours, 1 and 3 days.
DELAY_BOUNDARIES_S: Final = (60, 600, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S, 72 * _HOUR_S)
TIMER_NAMES: Final = (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
_JAVA_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")


def is_timer_message(topic: str, properties: Mapping[str, str]) -> bool:
    """Return whether a message without delay level has a delivery time and has not been through the wheel."""
    return (
        any(name in properties for name in TIMER_NAMES)
        and names.TIMER_OUT_MS not in properties
        and topic != TIMER_TOPIC
    )


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """Return the time in ms that the properties ask for.  Raises ValueError if it is no number."""
    if names.TIMER_DELAY_SEC in properties:
        return now_ms + _number(properties[names.TIMER_DELAY_SEC]) * 1000
    if names.TIMER_DELAY_MS in properties:
        return now_ms + _number(properties[names.TIMER_DELAY_MS])
    return _number(properties[names.TIMER_DELIVER_MS])


def _number(text: str) -> int:
    if not _JAVA_LONG.fullmatch(text):
        raise ValueError(text)
    return int(text)


def slot_time_ms(deliver_ms: int, slot_ms: int) -> int:
    """Return the slot of a delivery time: the last that begins before it, because a slot is delivered at its end."""
    return (deliver_ms - 1) // slot_ms * slot_ms


def is_congested(count: int, congest_num_each_slot: int, random_below: Callable[[int], int]) -> bool:
    """Return whether a slot with `count` messages refuses one more: at random above the limit, always at twice.

    The chance falls towards twice the limit, as in RocketMQ.
    """
    if count <= congest_num_each_slot:
        return False
    if count >= congest_num_each_slot * 2:
        return True
    excess = count - congest_num_each_slot
    return random_below(1000) > 1000 * excess / (congest_num_each_slot + 0.1)


def timer_message(
    topic: str,
    queue_id: int,
    properties: dict[str, str],
    deliver_ms: int,
    now_ms: int,
    rules: TimerConfig,
    is_rejected: Callable[[int], bool] = lambda slot_time: False,
) -> tuple[str, int]:
    """Convert `properties` for delivery at `deliver_ms`; return the topic and queue in which the message is stored.

    A time in the past changes nothing: the message goes straight to `topic`.  Raises RequestError where RocketMQ
    refuses: the wheel is off, the delay is too long, the slot is full, or the recall's time is past.
    """
    check_enabled(rules)
    if deliver_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in properties:
            raise illegal(rules)
        return topic, queue_id
    if deliver_ms - now_ms > rules.timer_max_delay_sec * 1000:
        raise illegal(rules)
    slot_time = slot_time_ms(deliver_ms, rules.slot_ms)
    if is_rejected(slot_time):
        limit = rules.timer_congest_num_each_slot
        remark = (
            f"timer message is under flow control, max num limit is {limit * 2} or the current value is greater than "
            f"{limit} and less than {limit * 2}, trigger random flow control"
        )
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    properties[names.TIMER_OUT_MS] = str(slot_time)
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QUEUE_ID] = str(queue_id)
    return TIMER_TOPIC, 0


def check_enabled(rules: TimerConfig) -> None:
    """Raise RequestError if the timer wheel is off."""
    if not rules.timer_wheel_enable:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


def illegal(rules: TimerConfig) -> RequestError:
    """Return the refusal of an impossible time."""
    max_delay_ms = rules.timer_max_delay_sec * 1000
    remark = (
        f"timer message illegal, the delay time should not be bigger than the max delay {max_delay_ms}ms; or if "
        "set del msg, the delay time should be bigger than the current time"
    )
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)


class TimerIntake:
    """`timer_message` with a broker's clock and configuration.  Lives in the event loop's thread.

    `count_at` returns the number of messages in a slot of the wheel.
    """

    def __init__(
        self, config: LiveConfig, clock: Clock, random_below: Callable[[int], int], count_at: Callable[[int], int]
    ) -> None:
        self._config = config
        self._clock = clock
        self._random_below = random_below
        self._count_at = count_at
        # Delays that senders asked for, s, by topic.
        self.delays = Distributions(DELAY_BOUNDARIES_S)

    def wheel_times(self) -> tuple[int, int, int] | None:
        """Return now, the longest delay, and the width of a slot, ms; None if the timer wheel is off."""
        rules = self._config.store
        limits = self._clock.wall_ms(), rules.timer_max_delay_sec * 1000, rules.slot_ms
        return limits if rules.timer_wheel_enable else None

    def has_room(self, slot_ms: int) -> bool:
        """Return whether a slot takes messages, and none of them by chance."""
        return self._count_at(slot_ms) <= self._config.store.timer_congest_num_each_slot

    def place(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Return where to store a message without delay level; see `timer_message`."""
        if not is_timer_message(topic, properties):
            return topic, queue_id
        rules = self._config.store
        check_enabled(rules)
        now_ms = self._clock.wall_ms()
        try:
            deliver_ms = requested_ms(properties, now_ms)
        except ValueError:
            raise illegal(rules) from None
        place = self._timed(topic, queue_id, properties, deliver_ms)
        if place[0] == TIMER_TOPIC:
            self.delays.add((topic,), (deliver_ms - now_ms) // 1000)
        return place

    def place_at(self, topic: str, queue_id: int, properties: dict[str, str], deliver_ms: int) -> tuple[str, int]:
        """Return where to store a message of the broker itself for delivery at `deliver_ms`; see `timer_message`."""
        properties[names.TIMER_DELIVER_MS] = str(deliver_ms)
        return self._timed(topic, queue_id, properties, deliver_ms)

    def _timed(self, topic: str, queue_id: int, properties: dict[str, str], deliver_ms: int) -> tuple[str, int]:
        rules = self._config.store

        def is_rejected(slot_time: int) -> bool:
            return is_congested(self._count_at(slot_time), rules.timer_congest_num_each_slot, self._random_below)

        return timer_message(topic, queue_id, properties, deliver_ms, self._clock.wall_ms(), rules, is_rejected)
