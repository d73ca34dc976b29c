"""The compiled maker of requests makes what the Python code makes, or leaves the message to it."""

import random
from itertools import count
from typing import Any

import pytest

from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.send.reply import Reply
from sprocket.client.send.send_request import SendRequest, SendSettings, compiled_requests, single_request

_SETTINGS = SendSettings(max_message_size=6000)
usual = compiled_requests(_SETTINGS)
pytestmark = pytest.mark.skipif(usual is None, reason="the compiled engine is not built")


def new_ids() -> Any:
    numbers = count()
    return lambda: f"{next(numbers):032X}"


def parts(request: SendRequest) -> list[object]:
    return [getattr(request, name) for name in SendRequest.__slots__]


def compare(message: Message) -> bool:
    """Return whether the compiled code took `message`."""
    assert usual is not None
    made = usual(message, new_ids())
    if made is None:
        return False
    assert type(made) is SendRequest
    assert parts(made) == parts(single_request(message, _SETTINGS, new_ids()))
    return True


def test_a_usual_message_is_taken() -> None:
    assert compare(Message("Orders", b"x"))
    assert compare(Message("Orders", b"x" * 4095, tags="TagA", keys=["k1", "k2"]))


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay=1.0),
        Message("T", b"x", delay_level=1),
        Message("T", b"x", deliver_at=1_800_000_000_000),
        Message("T", b"x", unique_key="k"),
        Message("T", b"x", flag=3),
        Message("T", b"x", wait_store_ok=False),
        Message("T", b"x", properties={"a": "b"}),
        Message("T", b""),
        Message("T", b"x" * 4096),
        Message("T", b"x", tags="é"),
        Message("T", b"x", keys="k" * 5000),
        Reply("T", b"x", {}, "broker-a"),
    ],
)
def test_others_are_left_to_python(message: Message) -> None:
    assert not compare(message)


def test_attributes_that_were_set_to_anything() -> None:
    chance = random.Random(3)
    values = {
        "body": [b"b", bytearray(b"x"), "text", None, b"", memoryview(b"x"), b"y" * 5000, b"z" * 7000],
        "tags": ["", "TagA", "a\x01b", "a\x02b", None, 7, "日本", "t" * 40_000],
        "keys": ["", "k", "a b", "a\x01", [], None, "k" * 4096],
        "properties": [None, {}, {"a": "b"}],
        "flag": [0, 1, False, None, 1 << 40, 0.0],
        "delay_level": [0, 3, False, None],
        "delay_ms": [None, 5],
        "deliver_at_ms": [None, 5],
        "unique_key": ["", "u", None],
        "wait_store_ok": [True, False, 1, None],
    }
    taken = 0
    for _ in range(4000):
        message = Message("T", b"x")
        for name in chance.sample(sorted(values), chance.randrange(3)):
            setattr(message, name, chance.choice(values[name]))
        try:
            taken += compare(message)
        except IllegalMessage as refused:
            raise AssertionError(f"Python refuses what the compiled code takes: {refused}") from None
    assert taken > 1000


def test_a_deleted_attribute_is_left_to_python() -> None:
    for name in Message.__slots__:
        message = Message("T", b"x")
        delattr(message, name)
        assert usual is not None
        assert usual(message, new_ids()) is None


def test_other_classes_are_refused() -> None:
    from sprocket.client.send import sends_native as client_sends

    with pytest.raises(ValueError, match="other attributes"):
        client_sends.Preparer(SendRequest, SendRequest, 310, 10)
    with pytest.raises(ValueError, match="6 fixed texts"):
        client_sends.SendHeader((b"",))
    with pytest.raises(TypeError, match="bytes"):
        client_sends.SendHeader(("",) * 6)  # type: ignore[arg-type] # refused
