"""JSON headers that are almost like one before, which the compiled engine compares with it and does not parse."""

import struct
from typing import Final

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import to_ext_fields
from tests.fuzz.target import Target
from tests.fuzz.twins.send_targets import PLAIN, Twin, compiled
from tests.send_headers import send_header

_PREFIX_BYTES: Final = 8
_BODY: Final = b"body"


def _frame(queue_id: int, opaque: int, more: dict[str, str]) -> bytes:
    fields = to_ext_fields(send_header(queue_id=queue_id, properties=PLAIN)) | more
    return encode_request(RequestCode.SEND_MESSAGE_V2, opaque, fields, len(_BODY), serialization=JSON) + _BODY


def _header_of(frame: bytes) -> bytes:
    return frame[_PREFIX_BYTES : -len(_BODY)]


def _frame_of(header: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(_BODY), len(header)) + header + _BODY


_PROOF: Final = {"AccessKey": "reader", "Signature": "0123456789abcdef0123456789a="}
# Sends that come first: nine of a client that does not sign, nine of one that does.
_BEFORE: Final = b"".join(_frame(number % 4, number, more) for more in ({}, _PROOF) for number in range(9))


def repeated_header_twins(data: bytes) -> None:
    """`data` is the header of a send after usual ones, and usual ones follow it."""
    if compiled is None or len(data) >= 1 << 24:
        return
    pure, native = (Twin(is_native, sync_flush=False) for is_native in (False, True))
    read = _BEFORE + _frame_of(data) + _BEFORE
    for one, other in zip(native.serve([_BEFORE, read]), pure.serve([_BEFORE, read]), strict=True):
        assert one == other, (one, other)


_SEEDS: Final = [_header_of(_frame(number, 1 << number, more)) for number in range(3) for more in ({}, _PROOF)]

ENGINE_HEADER_TARGETS: Final = (Target("repeated_header_twins", repeated_header_twins, _SEEDS, 1 << 16),)
