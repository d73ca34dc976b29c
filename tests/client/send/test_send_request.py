"""What may be sent, and what it looks like on the wire."""

import struct
from typing import Any

import pytest

from sprocket import Compression, IllegalMessage, Message, SendSettings
from sprocket.client.arguments import check_group, check_topic
from sprocket.client.compression import decompress
from sprocket.client.send.send_request import SendRequest, batch_request, single_request
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message import properties as message_properties

SETTINGS = SendSettings()


def single(message: Message, settings: SendSettings = SETTINGS) -> SendRequest:
    return single_request(message, settings, lambda: "ID")


def test_fields_of_a_send() -> None:
    message = Message("T", b"x", tags="A", keys=["k1", "k2"], properties={"origin": "JFK"}, delay_level=3, flag=7)
    request = single(message)
    fields = request.ext_fields("g", SETTINGS, MessageQueue("T", "broker-a", 2), 1700000000000)
    properties = message_properties.parse(fields.pop("i"))
    assert properties == {
        "UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "A", "KEYS": "k1 k2", "DELAY": "3", "origin": "JFK",
    }  # fmt: skip
    assert fields == {
        "a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "7",
        "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip


def test_body_is_compressed_from_the_limit_on() -> None:
    settings = SendSettings(compress_msg_body_over_howmuch=100, compress_type=Compression.ZSTD)
    assert single(Message("T", bytes(99)), settings).sys_flag == 0
    request = single(Message("T", bytes(100)), settings)
    assert request.sys_flag == 0x201
    assert decompress(request.body, request.sys_flag) == bytes(100)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"body": b""}, "empty"),
        ({"body": bytes(SETTINGS.max_message_size + 1)}, "maxMessageSize"),
        ({"body": "text"}, "body is a str"),
        ({"properties": {"TAGS": "A"}}, "reserved"),
        ({"properties": {"a": " "}}, "blank"),
        ({"properties": {"a": 1}}, "property 'a' is an int"),
        ({"properties": {"a": "b\x02c"}}, "0x01 or 0x02"),
        ({"properties": {"a": "\ud800"}}, "no Unicode text"),
        ({"properties": {"a": "b" * 40_000}}, "properties have"),
        ({"tags": "A\x01"}, "0x01 or 0x02"),
        ({"tags": "\ud800"}, "no Unicode text"),
        ({"keys": ["a"]}, "0x01 or 0x02"),
    ],
)
def test_illegal_message_is_refused(changes: dict[str, Any], reason: str) -> None:
    """Also one whose attributes were set after it was made."""
    message = Message("T", b"x")
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(IllegalMessage, match=reason):
        single(message)


@pytest.mark.parametrize("topic", ["", "  ", "a b", "a/b", "t" * 128, "SCHEDULE_TOPIC_XXXX"])
def test_illegal_topic_is_refused(topic: str) -> None:
    with pytest.raises(IllegalMessage):
        check_topic(topic)


@pytest.mark.parametrize("group", ["", "a b", "g" * 256])
def test_illegal_group_is_refused(group: str) -> None:
    with pytest.raises(IllegalMessage):
        check_group(group)


def test_batch_on_the_wire() -> None:
    ids = iter(["ID1", "ID2", "ID3"])
    messages = [Message("T", b"one", flag=5), Message("T", b"two", tags="B")]
    request = batch_request(messages, SETTINGS, lambda: next(ids))
    assert (request.code, request.message_id) == (RequestCode.SEND_BATCH_MESSAGE, "ID1,ID2")
    assert request.ext_fields("g", SETTINGS, MessageQueue("T", "b", 0), 1)["m"] == "true"
    size, magic, crc, flag, body_bytes = struct.unpack_from(">iiiii", request.body)
    properties = b"UNIQ_KEY\x01ID1\x02WAIT\x01true\x02"
    assert (magic, crc, flag, body_bytes) == (0, 0, 5, 3)
    assert request.body[20:size] == b"one" + len(properties).to_bytes(2, "big") + properties
    assert struct.unpack_from(">i", request.body, size)[0] == len(request.body) - size


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic"),
        ([Message("A", b"x", delay_level=1)], "delayed"),
        ([Message("A", b"x", delay=0.005)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("A", b"x"), Message("A", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("A", bytes(3 << 20)), Message("A", bytes(3 << 20))], "maxMessageSize"),
        ([Message("A", b"")], "empty"),
    ],
)
def test_batch_that_is_none_is_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(IllegalMessage, match=reason):
        batch_request(messages, SETTINGS, lambda: "ID")
