"""Whole frames, encoded: requests, responses, and templates for the responses of the hot paths."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ClientError
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codes import LanguageCode, ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, Buffer, Request, Response
from sprocket.remoting.engine import response_encoder
from sprocket.remoting.framing import JSON, ROCKETMQ, frame_prefix
from sprocket.remoting.headers.base import Header, to_ext_fields

_LANGUAGE_NUMBERS = frozenset(map(int, LanguageCode))
_encode_json = msgspec.json.Encoder().encode


class NotEncodable(ClientError, ValueError, TypeError):
    """A request cannot be encoded; nothing of it was sent."""


class FrameTooLarge(NotEncodable):
    """A request that its server would answer by closing the connection, with everybody's requests on it."""

    response_code = int(ResponseCode.INVALID_PARAMETER)


def request_prefix(serialization: int, header_bytes: int, body_bytes: int, fields: int = 0) -> bytes:
    """Return the eight bytes that stand before the header of a request.  Raises FrameTooLarge.

    RocketMQ counts the length field as part of the frame, Sprocket does not: the smaller limit holds.
    """
    size = 8 + header_bytes + body_bytes
    if size > limits.MAX_FRAME_BYTES:
        raise FrameTooLarge(f"the request has {size} bytes, at most {limits.MAX_FRAME_BYTES}; send several requests")
    if header_bytes > limits.MAX_HEADER_BYTES:
        raise FrameTooLarge(f"the fields of the request have {header_bytes} bytes, at most {limits.MAX_HEADER_BYTES}")
    if fields > limits.MAX_EXT_FIELDS:
        raise FrameTooLarge(f"the request has {fields} fields, at most {limits.MAX_EXT_FIELDS}")
    return frame_prefix(serialization, header_bytes, body_bytes)


def as_body(body: object) -> Buffer:
    """Return `body` as a buffer whose length is its number of bytes.  Raises NotEncodable.

    A connection joins buffers of many requests, so a wrong object would fail only when all of them are written.
    """
    if isinstance(body, bytes | bytearray):
        return body
    if isinstance(body, memoryview):
        return body if body.itemsize == 1 and body.ndim == 1 and body.c_contiguous else bytes(body)
    raise NotEncodable(f"the body of a request is a {type(body).__name__}; pass bytes")


def encode_request(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str] | None = None,
    body_bytes: int = 0,
    *,
    oneway: bool = False,
    serialization: int = JSON,
) -> bytes:
    """Everything of a request's frame that stands before its body.  Raises NotEncodable."""
    encode_header = codec_binary.encode_header if serialization == ROCKETMQ else codec_json.encode_header
    try:
        ext_fields = to_ext_fields(header) if isinstance(header, Header) else header
        encoded = encode_header(code, opaque, FLAG_ONEWAY if oneway else 0, None, ext_fields)
    except (TypeError, ValueError, OverflowError, AttributeError, struct.error) as error:
        raise NotEncodable(f"request {code} cannot be encoded: {type(error).__name__}: {error}") from None
    return request_prefix(serialization, len(encoded), body_bytes, len(ext_fields or ())) + encoded


def encode_forwarded(request: Request[Any], opaque: int, fields: Mapping[str, str], body_bytes: int) -> bytes:
    """Return what stands before the body of `request` on its way to another server: with its language and version.

    Servers choose features by them.  The header is JSON.  Raises NotEncodable.
    """
    try:
        language = request.language or LanguageCode.OTHER.name
        if language.isdecimal():  # a ROCKETMQ header has the number
            language = LanguageCode(int(language)).name if int(language) in _LANGUAGE_NUMBERS else "OTHER"
        elif language not in LanguageCode.__members__:
            language = LanguageCode.OTHER.name
        header: dict[str, object] = {"code": request.code, "extFields": fields, "flag": request.flag & FLAG_ONEWAY}
        header |= {"language": language, "opaque": opaque, "serializeTypeCurrentRPC": "JSON"}
        header["version"] = request.version
        if request.remark is not None:
            header["remark"] = request.remark
        encoded = _encode_json(header)
    except (TypeError, ValueError, OverflowError, AttributeError, struct.error) as error:
        raise NotEncodable(f"request {request.code} cannot be encoded: {type(error).__name__}: {error}") from None
    return request_prefix(JSON, len(encoded), body_bytes, len(fields)) + encoded


def encode_response(response: Response, opaque: int, serialization: int) -> list[Buffer]:
    """Return a response's frame as buffers: prefix and header, then the body's buffers as they are."""
    header = response.header
    ext_fields = to_ext_fields(header) if isinstance(header, Header) else header
    encode_header = codec_binary.encode_header if serialization == ROCKETMQ else codec_json.encode_header
    encoded = encode_header(response.code, opaque, FLAG_RESPONSE, response.remark, ext_fields)
    bodies = as_buffers(response.body)
    size = sum(len(buffer) for buffer in bodies)
    return [frame_prefix(serialization, len(encoded), size) + encoded, *bodies]


def as_buffers(body: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """Return a body as a sequence of buffers, empty for no body."""
    if isinstance(body, bytes | bytearray | memoryview):
        return (body,) if len(body) else ()
    return body


class ResponseTemplate:
    """Encodes responses of one code and one set of header fields several times faster than `encode_response`.

    Values are ASCII bytes or integers that need no escaping in JSON: numbers, ids, addresses.
    """

    __slots__ = ("_constants", "_names", "_remark", "_values_format", "code", "encoder", "json_format")

    def __init__(
        self,
        code: int,
        names: Sequence[str] | Mapping[str, str],
        constants: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """`names` are the fields whose values vary, in order; a mapping gives each its %-format (else %b).

        `constants` and `remark` are sent with every response.  `json_format` is the whole JSON header as one
        format.  Its arguments are the values, then the opaque.
        """
        formats = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, "%b")
        # One %-format makes the whole JSON header; literal percent signs of constants are doubled.
        fixed = codec_json.encode_header(code, 0, FLAG_RESPONSE, remark, dict(constants or {}))
        document = msgspec.json.decode(fixed, type=dict[str, msgspec.Raw])
        fields = [b'"%b":"%b"' % (name.encode(), value.encode()) for name, value in formats.items()]
        inner = bytes(document.pop("extFields", b"{}"))[1:-1].replace(b"%", b"%%")
        if inner:
            fields.append(inner)
        members = [b'"code":%d' % code]
        if fields:
            members.append(b'"extFields":{%b}' % b",".join(fields))
        for name, raw in document.items():
            if name != "code":
                value = b"%d" if name == "opaque" else bytes(raw).replace(b"%", b"%%")
                members.append(b'"%b":%b' % (name.encode(), value))
        self.json_format = b"{" + b",".join(members) + b"}"
        self.code = code
        # No value holds a NUL, which JSON would have to escape: one format makes all texts at once.
        self._values_format = b"\0".join(value.encode() for value in formats.values())
        self._names, self._constants, self._remark = tuple(formats), dict(constants or {}), remark
        remark_bytes = (remark or "").encode()
        # The compiled encoder of these responses; None with pure Python.
        self.encoder = response_encoder(
            self.json_format, formats, [struct.pack(">h", len(name.encode())) + name.encode() for name in formats],
            (code, int(LanguageCode.PYTHON), VERSION), (FLAG_RESPONSE, len(remark_bytes), remark_bytes),
            codec_binary.encode_map(self._constants),
        )  # fmt: skip

    def frame(self, serialization: int, opaque: int, values: tuple[bytes | int, ...], body_bytes: int = 0) -> bytes:
        """Prefix and header of a frame whose body has `body_bytes`."""
        if self.encoder is not None:
            frame: bytes | None = self.encoder.frame(serialization, opaque, values, body_bytes)
            if frame is not None:
                return frame
        if serialization == JSON:
            header = self.json_format % (*values, opaque)
        else:
            texts = (self._values_format % values).decode().split("\0") if values else []
            fields = dict(zip(self._names, texts, strict=True)) | self._constants
            header = codec_binary.encode_header(self.code, opaque, FLAG_RESPONSE, self._remark, fields)
        return frame_prefix(serialization, len(header), body_bytes) + header
