"""Texts that are not UTF-8, or hold half of a character, in every field of every header: read as Java reads them.

Both serializations, both engines.  What cannot be read is refused alone, with its opaque.
"""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from sprocket.common import limits
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting import headers
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Response
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, frame_prefix
from sprocket.remoting.headers.base import Header
from sprocket.remoting.routes import (
    Action,
    AllFields,
    NoHeader,
    Resource,
    Route,
    RouteTable,
    Traffic,
    UnroutableRequest,
    open_frame,
)
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.bad_texts import Connection

CODE: Final = RequestCode.SEND_MESSAGE_V2
MARK: Final = "\ufffd"


class Text(NamedTuple):
    """A text between two others: as JSON, as bytes in a ROCKETMQ header (None: not possible), and as Java reads it."""

    in_json: bytes
    in_binary: bytes | None
    text: str


# Source of the texts: `new String(bytes, UTF_8)` and `String.getBytes(UTF_8)` of OpenJDK 17.
TEXTS: Final = {
    "GBK": Text(b"\xc4\xe3\xba\xc3", b"\xc4\xe3\xba\xc3", MARK * 3),
    "GBK with a backslash": Text(b"\xd5\\\\", b"\xd5\\", MARK + "\\"),
    "cut": Text(b"\xf0\x9f\x98", b"\xf0\x9f\x98", MARK),
    "overlong": Text(b"\xc0\xaf", b"\xc0\xaf", MARK * 2),
    "surrogate": Text(b"\xed\xa0\xbd", b"\xed\xa0\xbd", MARK),
    "half of a pair": Text(rb"\ud83d", None, "?"),
    "other half of a pair": Text(rb"\uDE00", None, "?"),
    "control characters": Text(b"\x01\x02", b"\x01\x02", "\x01\x02"),
}


def header_types() -> list[type[Header]]:
    """All headers of all requests and responses."""
    for module in pkgutil.iter_modules(headers.__path__):
        importlib.import_module(f"{headers.__name__}.{module.name}")
    found, left = set(), [Header]
    while left:
        found.add(left[-1])
        left += left.pop().__subclasses__()
    return sorted((one for one in found if one.__module__.startswith(headers.__name__)), key=lambda one: one.__name__)


def fields_of(header: type[Header]) -> dict[str, tuple[str, bool]]:
    """By field: a value that is right, and whether it is a text."""
    found = {}
    for field in msgspec.structs.fields(header):
        kind = str(field.type)
        is_text = "str" in kind
        found[field.encode_name] = "x" if is_text else "true" if "bool" in kind else "1", is_text
    return found


def table(header: type[Header], is_native: bool) -> RouteTable:
    made = RouteTable([Route(CODE, header, lambda request: None, Resource.NONE, Action.NONE, Traffic.SEND)])
    if not is_native:
        made.entries[int(CODE)].native = None
    return made


def json_frame(fields: dict[str, bytes], **members: bytes) -> Frame:
    """A frame whose fields and members are raw JSON."""
    ext_fields = b",".join(b'"%b":"%b"' % (name.encode("latin-1"), value) for name, value in fields.items())
    all_members = {"code": b"%d" % CODE, "extFields": b"{%b}" % ext_fields, "flag": b"0", "opaque": b"7"} | members
    return JSON, b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in all_members.items()), b""


def binary_frame(fields: dict[str, bytes], remark: bytes = b"", flag: int = 0) -> Frame:
    pieces = [
        len(name.encode("latin-1")).to_bytes(2, "big") + name.encode("latin-1") + len(value).to_bytes(4, "big") + value
        for name, value in fields.items()
    ]
    ext = b"".join(pieces)
    head = codec_binary.encode_header(int(CODE), 7, flag, None, None)[:-8]
    return ROCKETMQ, b"".join((head, len(remark).to_bytes(4, "big"), remark, len(ext).to_bytes(4, "big"), ext)), b""


def bad_frames(name: str, fields: dict[str, str]) -> Iterator[tuple[Frame, str]]:
    """Frames with a bad text in the field `name`, and what it is read as."""
    usual = {field: value.encode() for field, value in fields.items()}
    for text in TEXTS.values():
        yield json_frame(usual | {name: b"a%bz" % text.in_json}), f"a{text.text}z"
        if text.in_binary is not None:
            yield binary_frame(usual | {name: b"a%bz" % text.in_binary}), f"a{text.text}z"


@pytest.mark.parametrize("header", header_types(), ids=lambda header: header.__name__)
def test_every_field_of_every_header(header: type[Header]) -> None:
    fields = fields_of(header)
    usual = {name: value for name, (value, _) in fields.items()}
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(header)}
    tables = [table(header, is_native) for is_native in (True, False)]
    for name, (_, is_text) in fields.items():
        for frame, text in bad_frames(name, usual):
            for one in tables:
                try:
                    _, request = one.decode(frame)  # type: ignore[misc] # it is a request
                except UnroutableRequest as error:
                    assert not is_text, (name, frame)
                    assert (error.request.opaque, error.code) == (7, ResponseCode.SYSTEM_ERROR)
                else:
                    assert is_text and getattr(request.header, attributes[name]) == text, (name, frame)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_names_and_members_outside_the_fields(text: Text) -> None:
    routes = table(AllFields, True)
    frames = [json_frame({}, language=b'"%b"' % text.in_json, remark=b'"%b"' % text.in_json)]
    if text.in_binary is not None:
        frames.append(binary_frame({}, remark=text.in_binary))
    for frame in frames:
        for request in (open_frame(frame)[0], routes.decode(frame)[1]):  # type: ignore[index]
            assert request.remark == text.text
            assert frame[0] == ROCKETMQ or request.language == text.text
    names = [(text.in_json, json_frame), (text.in_binary, binary_frame)]
    for raw, make in names:
        if raw is not None:
            _, request = routes.decode(make({raw.decode("latin-1"): b"v", "topic": b"T"}))  # type: ignore[misc,operator]
            assert request.header == {text.text: "v", "topic": "T"}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_responses_of_servers(text: Text) -> None:
    for frame in (
        json_frame({"msgId": text.in_json}, flag=b"1", remark=b'"%b"' % text.in_json),
        binary_frame({"msgId": text.in_binary or b"?"}, text.in_binary or b"?", 1),
    ):
        response = open_frame(frame)
        assert isinstance(response, ReceivedResponse)
        assert (response.remark, response.ext_fields) == (text.text, {"msgId": text.text})


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("begin", [b'{"a":{', b'{0:"x","a":{', b'{"a":{{"q":1}:"x",'])
def test_bodies(text: Text, begin: bytes) -> None:
    body = b'%b"k%b":["%b"]}}' % (begin, text.in_json, text.in_json)
    found: dict[str, Any] = loads(body, dict[str, Any])
    assert found["a"]["k" + text.text] == [text.text]


REFUSED: Final[dict[str, dict[str, bytes]]] = {
    "code beyond 32 bits": {"code": b"4294967296"},
    "code as text": {"code": b'"send"'},
    "null code": {"code": b"null"},
    "flag as a boolean": {"flag": b"true"},
    "version beyond 32 bits": {"version": b"99999999999"},
    "opaque beyond 32 bits": {"opaque": b"8589934592"},
    "language as an object": {"language": b"{}"},
    "remark as a number": {"remark": b"5"},
    "fields as a list": {"extFields": b"[1]"},
    "fields as text": {"extFields": b'"x"'},
    "object as a field": {"extFields": b'{"a":{}}'},
    "not a number": {"extFields": b'{"a":NaN}'},
    "escape without a meaning": {"remark": rb'"\x"'},
    "quotation mark that a GBK letter hides": {"remark": b'"\xd5\\"', "version": b"3"},
}


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_read_is_refused_alone(members: dict[str, bytes]) -> None:
    frame = json_frame({}, **members)
    for opened in (open_frame, table(AllFields, True).decode):
        with pytest.raises(UnroutableRequest, match="cannot be read") as refused:
            opened(frame)
        error = refused.value
        assert error.request.opaque == int(members.get("opaque", b"7"))
        assert (error.code, error.refusal_reason) == (ResponseCode.SYSTEM_ERROR, Reason.INVALID_HEADER)


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_a_response_that_cannot_be_read_fails_its_own_request(members: dict[str, bytes]) -> None:
    if "flag" in members:
        pytest.skip("no response")
    response = open_frame(json_frame({}, **({"flag": b"1"} | members)))
    assert isinstance(response, ReceivedResponse)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.opaque == int(members.get("opaque", b"7"))
    assert response.remark is not None and "cannot be read" in response.remark


@pytest.mark.parametrize(("at", "value"), [(13, -1), (13, 2**31 - 1), (17, 2**31 - 1), (17, 5), (21, 0x7FFF7FFF)])
def test_lengths_inside_a_binary_header(at: int, value: int) -> None:
    _, header, _ = binary_frame({"a": b"x", "b": b"y"})
    broken = header[:at] + value.to_bytes(4, "big", signed=True) + header[at + 4 :]
    with pytest.raises(UnroutableRequest, match="binary_header") as refused:
        open_frame((ROCKETMQ, broken, b""))
    assert refused.value.request.opaque == 7


@pytest.mark.parametrize("name", ["opaque", "flag", "version", "language", "remark", "extFields"])
def test_null_means_absent(name: str) -> None:
    request, fields = open_frame(json_frame({}, **{name: b"null"}))  # type: ignore[misc] # it is a request
    assert (request.opaque, request.flag, request.version) == (0 if name == "opaque" else 7, 0, 0)
    assert (request.language, request.remark, fields) == (None, None, {})


def test_a_language_may_be_a_number() -> None:
    request, _ = open_frame(json_frame({}, language=b"12"))  # type: ignore[misc] # it is a request
    assert request.language == "12"


def test_an_opaque_in_a_text_is_none() -> None:
    text = json.dumps('"opaque":5,').encode()
    for frame, opaque in ((json_frame({}, remark=text, code=b"null"), 7), (json_frame({}, remark=text), 7)):
        try:
            request, _ = open_frame(frame)  # type: ignore[misc] # it is a request
        except UnroutableRequest as error:
            request = error.request
        assert request.opaque == opaque
    assert codec_json.address_of(b'{"remark":%b,"code":x}' % text) is None


def test_a_usual_response_has_few_fields() -> None:
    many = {str(number): "1" for number in range(limits.MAX_EXT_FIELDS + 1)}
    assert codec_json.decode_response(codec_json.encode_header(0, 7, 1, None, many)) is None


async def test_a_connection_stays_open_after_all_of_them() -> None:
    echo = Route(RequestCode.HEART_BEAT, NoHeader, lambda request: Response(), Resource.NONE, Action.NONE)
    server = RemotingServer(RouteTable([echo]), ConnectionSettings("127.0.0.1"))
    await server.start()
    connection = await Connection.to(server.port)
    many = b"{%b}" % b",".join(b'"%d":"1"' % number for number in range(limits.MAX_EXT_FIELDS + 1))
    try:
        for number, members in enumerate([*REFUSED.values(), {"extFields": many}]):
            good, bad, oneway = (100 * number + more for more in range(1, 4))
            content = [encode_request(RequestCode.HEART_BEAT, good)]
            for opaque, flag in ((bad, b"0"), (oneway, b"2")):
                _, header, _ = json_frame({}, **({"opaque": b"%d" % opaque, "flag": flag} | members))
                content.append(frame_prefix(JSON, len(header), 0) + header)
            content.append(encode_request(RequestCode.HEART_BEAT, good + 50))
            await connection.answers(b"".join(content), [good, good + 50])
            assert (connection.codes[good], connection.codes[good + 50]) == (0, 0)
            if "opaque" not in members:
                assert connection.codes[bad] == ResponseCode.SYSTEM_ERROR
                assert "flag" in members or oneway not in connection.codes
        assert not server.counters.protocol_errors
    finally:
        connection.close()
        await server.stop()
