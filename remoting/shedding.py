"""Answers requests without serving them, as quickly as that can be done: for when there are more than can be served.

A server that serves as it reads has no queue of requests that it could look at.  Under more load than it can serve
they wait in the buffers of the sockets, and for as long as others are served that were ready at the same time.
Of a header only what an answer needs is looked at; whatever else is in it is not found out.
Source: RocketMQ 5.3.3, `BrokerFastFailure`.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from remoting.codes import ResponseCode
from remoting.command import FLAG_ONEWAY, FLAG_RESPONSE
from remoting.frames import ResponseTemplate
from remoting.framing import JSON, Frame
from remoting.headers.base import Int
from remoting.routes import Lane, RouteTable

# Why a request of a lane is not served that has waited so long, s, before it was read; None to serve it.
Overload = Callable[[Lane, float, int], str | None]


# A connection that brings less at once is not what overloads a server, and a pause of its own is no overload.
LARGE_READ_BYTES: Final = 16 * 1024


class _Address(msgspec.Struct):
    """What an answer needs of a JSON header."""

    flag: Int = 0
    opaque: Int = 0


_decode: Final = msgspec.json.Decoder(_Address, strict=False).decode
# Of a ROCKETMQ header: code, language, version; then opaque and flag.
_BINARY_ADDRESS: Final = struct.Struct(">ii")
_BINARY_ADDRESS_AT: Final = 5


def shed(frames: Sequence[Frame], table: RouteTable, overload: Overload, waited_s: float) -> tuple[list[Frame], bytes]:
    """The frames of one read that are to be served, and the answers to the others."""
    reasons = {lane: reason for lane in Lane if (reason := overload(lane, waited_s, len(frames))) is not None}
    if not reasons:
        return list(frames), b""
    templates = {
        lane: ResponseTemplate(ResponseCode.SYSTEM_BUSY, (), remark=reason) for lane, reason in reasons.items()
    }
    kept: list[Frame] = []
    answers: list[bytes] = []
    for frame in frames:
        lane = table.lane_of(frame)
        template = templates.get(lane) if lane is not None else None
        address = _address(frame) if template is not None else None
        if template is None or address is None or address.flag & FLAG_RESPONSE:
            kept.append(frame)
        elif not address.flag & FLAG_ONEWAY:
            answers.append(template.frame(frame[0], address.opaque, ()))
    return kept, b"".join(answers)


def _address(frame: Frame) -> _Address | None:
    serialization, header, _ = frame
    try:
        if serialization == JSON:
            return _decode(header)
        opaque, flag = _BINARY_ADDRESS.unpack_from(header, _BINARY_ADDRESS_AT)
        return _Address(flag, opaque)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error):
        return None
