"""The type of a message, and its priority."""

import pytest

from sprocket.remoting.message.message_type import priority_of, type_of

KINDS = [
    ({"TRAN_MSG": "TRUE"}, "TRANSACTION"),
    ({"DELAY": "1"}, "DELAY"),
    ({"__SHARDINGKEY": "k"}, "FIFO"),
    ({"_SYS_MSG_PRIORITY_": "0"}, "PRIORITY"),
    ({"__LITE_TOPIC": "chat"}, "LITE"),
    ({"TRAN_MSG": "false", "KEYS": "k"}, "NORMAL"),
]


def test_the_first_kind_of_those_that_the_properties_name_counts() -> None:
    for number, (_, expected) in enumerate(KINDS):
        table: dict[str, str] = {}
        for properties, _ in KINDS[number:]:
            table = properties | table
        assert type_of(table.get) == expected


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_each_way_to_delay(name: str) -> None:
    assert type_of({name: "1"}.get) == "DELAY"
    assert type_of({name: ""}.get) == "NORMAL"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("0", 0), ("7", 7), ("+7", 7), ("2147483647", 2147483647), ("2147483648", None), ("-1", None), ("high", None),
        ("", None), (" 1", None), ("1.0", None), ("\u0663", None), (None, None), ("99999999999", None),
    ],
)  # fmt: skip
def test_a_priority_is_a_number_of_32_bits(text: str | None, priority: int | None) -> None:
    assert priority_of(text) == priority
