"""Whole frames, encoded: requests, responses, and templates for the responses of the hot paths."""

import struct
from collections.abc import Mapping, Sequence

from remoting import codec_binary, codec_json
from remoting.codes import LanguageCode
from remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, LANGUAGE, VERSION, Buffer, Response
from remoting.framing import JSON, ROCKETMQ, frame_prefix
from remoting.headers.base import Header, to_ext_fields

_JSON_PREFIX = struct.Struct(">ii")
_BINARY_FIXED = struct.Struct(">iIhBhiiii")


def encode_request(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str] | None = None,
    body_bytes: int = 0,
    *,
    oneway: bool = False,
    serialization: int = JSON,
) -> bytes:
    """Everything of a request's frame that stands before its body."""
    ext_fields = to_ext_fields(header) if isinstance(header, Header) else header
    encode_header = codec_binary.encode_header if serialization == ROCKETMQ else codec_json.encode_header
    encoded = encode_header(code, opaque, FLAG_ONEWAY if oneway else 0, None, ext_fields)
    return frame_prefix(serialization, len(encoded), body_bytes) + encoded


def encode_response(response: Response, opaque: int, serialization: int) -> list[Buffer]:
    """A response's frame as buffers: prefix and header, then the body's buffers as they are."""
    header = response.header
    ext_fields = to_ext_fields(header) if isinstance(header, Header) else header
    encode_header = codec_binary.encode_header if serialization == ROCKETMQ else codec_json.encode_header
    encoded = encode_header(response.code, opaque, FLAG_RESPONSE, response.remark, ext_fields)
    bodies = as_buffers(response.body)
    size = sum(len(buffer) for buffer in bodies)
    return [frame_prefix(serialization, len(encoded), size) + encoded, *bodies]


def as_buffers(body: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """A body as a sequence of buffers, empty for no body."""
    if isinstance(body, bytes | bytearray | memoryview):
        return (body,) if len(body) else ()
    return body


class ResponseTemplate:
    """Encodes responses of one code and one set of header fields several times faster than `encode_response`.

    Values are ASCII bytes or integers that need no escaping in JSON: numbers, ids, addresses.
    """

    __slots__ = ("_binary_keys", "_code", "_json")

    def __init__(self, code: int, names: Sequence[str], constants: Mapping[str, str] | None = None) -> None:
        """`names` are the fields whose values vary, in order; `constants` are sent with every response."""
        # One %-format makes the whole JSON header; literal percent signs of constants are doubled.
        fixed = codec_json.encode_header(0, 0, 0, None, dict(constants or {}))
        inner = fixed[fixed.index(b'"extFields":{') + 13 : fixed.index(b"}", 13)] if constants else b""
        fields = [b'"%b":"%%b"' % name.encode() for name in names]
        if inner:
            fields.append(inner.replace(b"%", b"%%"))
        self._json = (
            b'{"code":%d,"extFields":{%b},"flag":1,"language":"%b","opaque":%%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}' % (code, b",".join(fields), LANGUAGE.encode(), VERSION)
        )
        self._code = code
        keys = [name.encode() for name in names]
        self._binary_keys = (
            [struct.pack(">h", len(key)) + key for key in keys],
            b"".join(
                struct.pack(">h", len(key.encode()))
                + key.encode()
                + struct.pack(">i", len(value.encode()))
                + value.encode()
                for key, value in (constants or {}).items()
            ),
        )

    def frame(self, serialization: int, opaque: int, values: tuple[bytes, ...], body_bytes: int = 0) -> bytes:
        """Prefix and header of a frame whose body has `body_bytes`."""
        if serialization == JSON:
            header = self._json % (*values, opaque)
            size = len(header)
            return _JSON_PREFIX.pack(4 + size + body_bytes, size) + header
        return self._binary_frame(opaque, values, body_bytes)

    def _binary_frame(self, opaque: int, values: tuple[bytes, ...], body_bytes: int) -> bytes:
        keys, constants = self._binary_keys
        pieces = [b""]
        for key, value in zip(keys, values, strict=True):
            pieces += (key, len(value).to_bytes(4, "big"), value)
        pieces.append(constants)
        ext_bytes = sum(map(len, pieces))
        header_bytes = 21 + ext_bytes
        pieces[0] = _BINARY_FIXED.pack(
            4 + header_bytes + body_bytes,
            ROCKETMQ << 24 | header_bytes,
            self._code,
            LanguageCode.PYTHON,
            VERSION,
            opaque,
            FLAG_RESPONSE,
            0,
            ext_bytes,
        )
        return b"".join(pieces)
