"""Headers of plain sends to one queue: all that does not change from message to message is encoded once."""

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sprocket.engine.choice import native
from sprocket.remoting.frames import NotEncodable, request_prefix
from sprocket.remoting.framing import JSON
from sprocket.remoting.request_format import request_format

_native: Final = native("sprocket.client.send.sends_native")
# Fields of `SendMessageRequestHeaderV2` that differ between the messages of one queue, and the opaque.
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = "f", "g", "h", "i"
_FORMATS: Final = {_SYS_FLAG: b'"%d"', _BORN: b'"%d"', _FLAG: b'"%d"', _PROPERTIES: b"%b"}
_encode_text: Final = msgspec.json.Encoder().encode


class SendHeader:
    """Encoder of the requests of one code with one set of fields; the result is that of `encode_request`."""

    __slots__ = ("_format", "encoder")

    def __init__(self, code: int, fields: Mapping[str, str], engine: Any = _native) -> None:
        """`fields` are those of any such request.  `engine` is the compiled twin, None for pure Python."""
        self._format = request_format(code, fields, _FORMATS)
        self.encoder: Any = None if engine is None else engine.SendHeader(_texts(self._format))

    def prefix(self, opaque: int, sys_flag: int, born_ms: int, flag: int, properties: str, body_bytes: int) -> bytes:
        """Return everything of a request's frame that stands before its body of `body_bytes`.

        Raises NotEncodable.
        """
        try:
            if self.encoder is not None:
                made: bytes | None = self.encoder.prefix(opaque, sys_flag, born_ms, flag, properties, body_bytes)
                if made is not None:
                    return made
            header = self._format % (sys_flag, born_ms, flag, _encode_text(properties), opaque)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise NotEncodable(f"a send cannot be encoded: {type(error).__name__}: {error}") from None
        return request_prefix(JSON, len(header), body_bytes) + header


def _texts(json_format: bytes) -> tuple[bytes, ...]:
    """Return what stands before, between and after the values of a %-format."""
    marked = json_format.replace(b"%%", b"\0").replace(b"%b", b"%d")
    return tuple(text.replace(b"\0", b"%") for text in marked.split(b"%d"))
