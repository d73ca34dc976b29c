"""A few lines of the wire protocol, independent of the project's own codec, for the harness and the load generator.

Source: RocketMQ 5.3.3, `RemotingCommand`, `RocketMQSerializable`, `SendMessageRequestHeaderV2`.
A frame is: length i32 (of all that follows), serialization u8 and header length u24, header, body.
"""

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
GET_ALL_MESSAGE_REQUEST_MODE = 402

JSON = 0
ROCKETMQ = 1
VERSION = 477  # MQVersion.V5_3_3's ordinal; the number itself changes nothing here
_RESPONSE_FLAG = 1
_BINARY_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length


class WireError(Exception):
    """The peer closed the connection or answered what is not a frame."""


@dataclass(frozen=True)
class Response:
    """A decoded response; `fields` are its extFields."""

    code: int
    opaque: int
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def request(
    code: int,
    opaque: int,
    fields: Mapping[str, str],
    body: bytes = b"",
    *,
    serialization: int = JSON,
    oneway: bool = False,
) -> bytes:
    """One whole request frame as the Java client writes it."""
    if serialization == ROCKETMQ:
        header = _binary_header(code, opaque, fields, oneway)
    else:
        header = json.dumps(
            {
                "code": code,
                "extFields": dict(fields),
                "flag": 2 if oneway else 0,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": VERSION,
            },
            separators=(",", ":"),
        ).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), serialization << 24 | len(header)) + header + body


def response(
    code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"", *, remark: str | None = None
) -> bytes:
    """One whole response frame with a JSON header."""
    decoded: dict[str, object] = {"code": code, "extFields": dict(fields), "flag": _RESPONSE_FLAG, "language": "OTHER"}
    if remark is not None:
        decoded["remark"] = remark
    decoded |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": VERSION}
    header = json.dumps(decoded, separators=(",", ":")).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def _binary_header(code: int, opaque: int, fields: Mapping[str, str], oneway: bool) -> bytes:
    pairs = bytearray()
    for key, value in fields.items():
        name, text = key.encode(), value.encode()
        pairs += struct.pack(">h", len(name)) + name + struct.pack(">i", len(text)) + text
    return _BINARY_FIXED.pack(code, 0, VERSION, opaque, 2 if oneway else 0, 0) + struct.pack(">i", len(pairs)) + pairs


def parse(frame: bytes) -> Response:
    """Decodes a frame without its leading length.  Raises WireError when it is not a response."""
    marked = int.from_bytes(frame[:4], "big")
    serialization, header_bytes = marked >> 24, marked & 0xFFFFFF
    header, body = frame[4 : 4 + header_bytes], frame[4 + header_bytes :]
    if serialization == ROCKETMQ:
        return _parse_binary(header, body)
    if serialization != JSON:
        raise WireError(f"serialization type {serialization}")
    decoded = json.loads(header)
    if not decoded["flag"] & _RESPONSE_FLAG:
        raise WireError(f"a request with code {decoded['code']} where a response was due")
    return Response(decoded["code"], decoded["opaque"], decoded.get("remark"), decoded.get("extFields") or {}, body)


def _parse_binary(header: bytes, body: bytes) -> Response:
    code, _, _, opaque, flag, remark_bytes = _BINARY_FIXED.unpack_from(header)
    if not flag & _RESPONSE_FLAG:
        raise WireError(f"a request with code {code} where a response was due")
    at = _BINARY_FIXED.size
    remark = header[at : at + remark_bytes].decode() or None
    at += remark_bytes + 4
    fields: dict[str, str] = {}
    while at < len(header):
        name_bytes = int.from_bytes(header[at : at + 2], "big")
        name = header[at + 2 : at + 2 + name_bytes].decode()
        at += 2 + name_bytes
        value_bytes = int.from_bytes(header[at : at + 4], "big")
        fields[name] = header[at + 4 : at + 4 + value_bytes].decode()
        at += 4 + value_bytes
    return Response(code, opaque, remark, fields, body)


def read_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    """Raises WireError when the peer closes before `size_bytes` have come."""
    parts = bytearray()
    while len(parts) < size_bytes:
        part = connection.recv(size_bytes - len(parts))
        if not part:
            raise WireError(f"closed after {len(parts)} of {size_bytes} bytes")
        parts += part
    return bytes(parts)


def invoke(
    address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", *, timeout_s: float = 5.0
) -> Response:
    """One request over a connection of its own to `host:port`.  Raises OSError or WireError."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(request(code, 1, fields or {}, body))
        return parse(read_exactly(connection, int.from_bytes(read_exactly(connection, 4), "big")))


def create_topic(broker: str, topic: str, queues: int) -> None:
    """Creates `topic` with as many read and write queues on one broker.  Raises WireError when it refuses."""
    answer = invoke(
        broker,
        UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "",
        },
    )
    if answer.code != 0:
        raise WireError(f"topic {topic}: code {answer.code}, {answer.remark}")
