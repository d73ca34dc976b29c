"""Answers requests without serving them, as quickly as that can be done: for when there are more than can be served.

A server that serves as it reads has no queue of requests that it could look at.  Under more load than it can serve
they wait in the buffers of the sockets, and for as long as others are served that were ready at the same time.
Of a header only what an answer needs is looked at; whatever else is in it is not found out.
Source: RocketMQ 5.3.3, `BrokerFastFailure`.
"""

import struct
from collections.abc import Sequence
from math import ceil
from typing import Final

import msgspec

from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame
from sprocket.remoting.headers.base import Int
from sprocket.remoting.routes import Lane, Overload, RouteTable

# A connection that brings less at once is not what overloads a server, and a pause of its own is no overload.
LARGE_READ_BYTES: Final = 16 * 1024


class _Address(msgspec.Struct, gc=False):
    """What an answer needs of a JSON header."""

    flag: Int = 0
    opaque: Int = 0


# As many bytes of a header as `RouteTable.lane_of` looks at.
_JSON_START: Final = 15
_BINARY_START: Final = 2
_PREFIX_BYTES: Final = 8
_decode: Final = msgspec.json.Decoder(_Address, strict=False).decode
_decode_all: Final = msgspec.json.Decoder(list[_Address], strict=False).decode
# Of a ROCKETMQ header: code, language, version; then opaque and flag.
_BINARY_ADDRESS: Final = struct.Struct(">ii")
_BINARY_ADDRESS_AT: Final = 5


def shed(frames: Sequence[Frame], table: RouteTable, overload: Overload, waited_s: float) -> tuple[list[Frame], bytes]:
    """The frames of one read that are to be served, and the answers to the others.

    Of each lane the first are served, one at least.
    """
    verdicts = {lane: overload(lane, waited_s, len(frames)) for lane in Lane}
    late = {lane: one for lane, one in verdicts.items() if one[0] < 1.0}
    if not late:
        return list(frames), b""
    lanes = _lanes(frames, table)
    answers: list[bytes] = []
    gone: set[int] = set()
    for lane, (share, reason) in late.items():
        # By identity: to hash an Enum takes as long as all the rest.
        of_lane = [index for index, one in enumerate(lanes) if one is lane]
        chosen = of_lane[ceil(len(of_lane) * share) :]
        opaques: dict[int, list[int]] = {JSON: [], ROCKETMQ: []}
        for index, address in zip(chosen, _addresses([frames[index] for index in chosen]), strict=True):
            if address is None or address.flag & FLAG_RESPONSE:
                continue
            gone.add(index)
            if not address.flag & FLAG_ONEWAY:
                opaques[frames[index][0]].append(address.opaque)
        template = ResponseTemplate(ResponseCode.SYSTEM_BUSY, (), remark=reason)
        answers += [_answers(template, kind, some) for kind, some in opaques.items() if some]
    return [frame for index, frame in enumerate(frames) if index not in gone], b"".join(answers)


def _addresses(frames: Sequence[Frame]) -> Sequence["_Address | None"]:
    """Of each frame, or None where it has none.  One call for all, for to refuse must be far cheaper than to serve."""
    if all(frame[0] == JSON for frame in frames):
        try:
            addresses = _decode_all(b"[%b]" % b",".join([frame[1] for frame in frames]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            addresses = []
        if len(addresses) == len(frames):
            return addresses
    return list(map(_address, frames))


def _answers(template: ResponseTemplate, serialization: int, opaques: Sequence[int]) -> bytes:
    first, last = template.frame(serialization, min(opaques), ()), template.frame(serialization, max(opaques), ())
    if serialization != JSON or len(first) != len(last):
        return b"".join([template.frame(serialization, opaque, ()) for opaque in opaques])
    # All are of one length.
    one = first[:_PREFIX_BYTES].replace(b"%", b"%%") + template.json_format
    return one * len(opaques) % tuple(opaques)


def _lanes(frames: Sequence[Frame], table: RouteTable) -> list[Lane | None]:
    """The lane of each; headers of one code begin alike, so few have to be asked for."""
    known: dict[bytes, Lane | None] = {}
    lanes: list[Lane | None] = []
    for frame in frames:
        start = frame[1][: _JSON_START if frame[0] == JSON else _BINARY_START]
        if start not in known:
            known[start] = table.lane_of(frame)
        lanes.append(known[start])
    return lanes


def _address(frame: Frame) -> _Address | None:
    serialization, header, _ = frame
    try:
        if serialization == JSON:
            return _decode(header)
        opaque, flag = _BINARY_ADDRESS.unpack_from(header, _BINARY_ADDRESS_AT)
        return _Address(flag, opaque)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error):
        return None
