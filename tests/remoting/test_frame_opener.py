"""Frames opened in one step: always what `open_frame` makes of them."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec import codec_binary
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frame_opener import open_for_gate
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame
from sprocket.remoting.routes import UnroutableRequest, open_frame

SEND = {"a": "group", "b": "Topic", "e": "3", "i": "KEYS\x01ü\x02", "AccessKey": "Someone", "Signature": "c2lnbmVk"}
names = st.one_of(st.sampled_from([*SEND, "ü", "", "k" * 31, "k" * 32]), st.text(max_size=4))
values = st.one_of(st.none(), st.booleans(), st.integers(), st.just(1.5), st.text(max_size=6), st.just(["a"]))
numbers = st.one_of(st.sampled_from([0, 1, 2, 310, 2**31, -1, "310", "x", None, 1.0, True]), st.integers())


def seen(opened: ReceivedResponse | tuple[object, dict[str, str]]) -> object:
    """All that a gate goes by, and what a route is given."""
    if isinstance(opened, ReceivedResponse):
        return opened
    request, fields = opened
    kept = ("code", "opaque", "flag", "version", "language", "remark", "body", "channel", "access", "serialization")
    return [getattr(request, name) for name in kept], fields


def check(frame: Frame) -> None:
    try:
        wanted = seen(open_frame(frame))
    except (ProtocolError, UnroutableRequest) as error:
        with pytest.raises(type(error)) as refused:
            open_for_gate(frame)
        assert str(refused.value) == str(error)
        return
    assert seen(open_for_gate(frame)) == wanted


@given(
    st.dictionaries(names, values, max_size=8),
    st.dictionaries(st.sampled_from(["code", "opaque", "flag", "version"]), numbers),
    st.dictionaries(st.sampled_from(["language", "remark", "#body", "#access", "#channel", "#serialization"]), values),
)
@example({}, {"code": 310}, {"#access": "YQ==", "#body": "YQ==", "#channel": 1})
@example({}, {"code": 310}, {"#serialization": 1})
def test_json(fields: dict[str, object], head: dict[str, object], more: dict[str, object]) -> None:
    for ext_fields in (fields, SEND, None):
        header = json.dumps({"code": 310, **head, "extFields": ext_fields, **more}).encode()
        check((JSON, header, b"body"))
        check((JSON, header[:-1], b""))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":310,"extFields":{"b":"first","b":"last"}}',
        b'{"code":310,"extFields":{"b":"\xff"}}',
        b'{"code":310,"extFields":{"b":"\\ud800"}}',
        b'{"code":310,"extFields":{"b":"1"},"extFields":{"b":"2"}}',
        b'{"extFields":{}}',
        b"[" * 100_000,
        json.dumps({"code": 1, "extFields": {str(n): "" for n in range(limits.MAX_EXT_FIELDS + 1)}}).encode(),
    ],
)
def test_json_that_is_not_usual(header: bytes) -> None:
    check((JSON, header, b""))


@given(st.data(), st.dictionaries(names, st.text(max_size=6), max_size=8), st.integers(-(2**15), 2**15 - 1))
def test_binary(data: st.DataObject, fields: dict[str, str], code: int) -> None:
    for ext_fields in (SEND, fields, {**fields, "b": "x"}, SEND):
        header = bytearray(codec_binary.encode_header(code, 7, 0, None, ext_fields))
        check((ROCKETMQ, bytes(header), b"body"))
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
        check((ROCKETMQ, bytes(header), b"body"))


def test_every_byte_of_a_binary_header() -> None:
    header = codec_binary.encode_header(310, 7, 0, None, SEND)
    check((ROCKETMQ, header, b""))
    for index in range(len(header)):
        for changed in (0, header[index] ^ 1, header[index] ^ 0x80):
            check((ROCKETMQ, header[:index] + bytes([changed]) + header[index + 1 :], b""))


def test_a_field_given_twice_and_a_long_code() -> None:
    for pair in ([{"b": "first"}, {"b": "last"}], [{"b": "first"}, {"b": ""}], [{"b": "x"}] * 600):
        pieces = b"".join(codec_binary.encode_map(one) for one in pair)
        head = codec_binary.encode_header(200050, 7, 2, None, None)[:-4]
        check((ROCKETMQ, head + len(pieces).to_bytes(4, "big") + pieces, b""))
    for code in (200050, 200151, 310, -3):
        check((ROCKETMQ, codec_binary.encode_header(code, 7, 0, None, SEND), b""))
