"""What becomes of the properties of a message that names a time."""

import pytest

from broker.timer.timer_intake import (
    is_congested,
    is_timer_message,
    requested_ms,
    slot_time_ms,
    timer_message,
)
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.timer_config import TimerConfig

NOW = 1_700_000_000_400
RULES = TimerConfig(timer_max_delay_sec=60, timer_congest_num_each_slot=100)


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("T", {"TIMER_DELAY_SEC": "1"}, True),
        ("T", {"TIMER_DELAY_MS": "1"}, True),
        ("T", {"TIMER_DELIVER_MS": "1"}, True),
        ("T", {"TAGS": "A"}, False),
        ("T", {"TIMER_DELIVER_MS": "1", "TIMER_OUT_MS": "1"}, False),
        (TIMER_TOPIC, {"TIMER_DELIVER_MS": "1"}, False),
    ],
)
def test_a_timer_message_names_a_time_and_comes_for_the_first_time(
    topic: str, properties: dict[str, str], expected: bool
) -> None:
    assert is_timer_message(topic, properties) is expected


def test_seconds_go_before_milliseconds_and_those_before_a_time() -> None:
    every = {"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "20", "TIMER_DELIVER_MS": "7"}
    assert requested_ms(every, NOW) == NOW + 3000
    del every["TIMER_DELAY_SEC"]
    assert requested_ms(every, NOW) == NOW + 20
    del every["TIMER_DELAY_MS"]
    assert requested_ms(every, NOW) == 7


@pytest.mark.parametrize("text", ["", "soon", "1.5", "1_000", " 5", "٣", "9" * 20])
def test_what_is_no_number_of_java_is_none_here(text: str) -> None:
    with pytest.raises(ValueError):
        requested_ms({"TIMER_DELAY_MS": text}, NOW)


@pytest.mark.parametrize(
    ("deliver_ms", "slot_ms", "expected"),
    [(5000, 1000, 4000), (5001, 1000, 5000), (5999, 1000, 5000), (6000, 1000, 5000), (6000, 100, 5900), (1, 1000, 0)],
)
def test_a_time_is_rounded_down_to_the_slot_before_it(deliver_ms: int, slot_ms: int, expected: int) -> None:
    assert slot_time_ms(deliver_ms, slot_ms) == expected


def test_the_message_remembers_where_it_goes() -> None:
    properties = {"TIMER_DELAY_SEC": "5", "TAGS": "A"}
    assert timer_message("Orders", 3, properties, NOW + 5000, NOW, RULES) == (TIMER_TOPIC, 0)
    assert properties == {
        "TIMER_DELAY_SEC": "5",
        "TAGS": "A",
        "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize("deliver_ms", [NOW, NOW - 1, -5])
def test_a_time_that_is_past_goes_straight_to_its_topic(deliver_ms: int) -> None:
    properties = {"TIMER_DELIVER_MS": str(deliver_ms)}
    assert timer_message("Orders", 3, properties, deliver_ms, NOW, RULES) == ("Orders", 3)
    assert properties == {"TIMER_DELIVER_MS": str(deliver_ms)}


def test_what_is_past_cannot_be_recalled() -> None:
    with pytest.raises(RequestError, match="or if set del msg, the delay time") as refusal:
        timer_message("Orders", 0, {"TIMER_DEL_UNIQKEY": "K"}, NOW, NOW, RULES)
    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_longest_delay_is_taken_and_no_longer_one() -> None:
    assert timer_message("T", 0, {}, NOW + 60_000, NOW, RULES)[0] == TIMER_TOPIC
    with pytest.raises(RequestError, match="should not be bigger than the max delay 60000ms;") as refusal:
        timer_message("T", 0, {}, NOW + 60_001, NOW, RULES)
    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_full_slot_refuses_by_its_own_time() -> None:
    asked: list[int] = []

    def is_rejected(slot_time: int) -> bool:
        asked.append(slot_time)
        return True

    with pytest.raises(RequestError, match="under flow control, max num limit is 200 or the current") as refusal:
        timer_message("T", 0, {}, NOW + 5000, NOW, RULES, is_rejected)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert asked == [1_700_000_005_000]


def test_without_a_wheel_every_time_is_refused() -> None:
    rules = TimerConfig(timer_wheel_enable=False)
    with pytest.raises(RequestError, match="accurate timer message is not enabled, timerWheelEnable is false"):
        timer_message("T", 0, {}, NOW - 1, NOW, rules)


@pytest.mark.parametrize(
    ("count", "drawn", "expected"),
    [(100, 999, False), (200, 0, True), (101, 11, True), (101, 9, False), (190, 901, True), (190, 899, False)],
)
def test_a_slot_beyond_its_limit_refuses_some_and_at_twice_the_limit_all(
    count: int, drawn: int, expected: bool
) -> None:
    assert is_congested(count, 100, lambda below: drawn) is expected


@pytest.mark.parametrize(
    ("precision", "expected"), [(1, 100), (100, 100), (199, 100), (200, 200), (999, 500), (1000, 1000), (5000, 1000)]
)
def test_precision_is_one_of_four(precision: int, expected: int) -> None:
    assert TimerConfig(timer_precision_ms=precision).slot_ms == expected


def test_roll_window_is_within_the_wheel() -> None:
    assert TimerConfig(timer_roll_window_slot=2).roll_window_ms == 2000
    for slots in (0, 1, 604_741):
        assert TimerConfig(timer_roll_window_slot=slots).roll_window_ms == 604_740_000
