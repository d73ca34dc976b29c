"""Load shedding: refuse requests as cheaply as possible when more arrive than can be served.

A server that serves as it reads has no queue of requests to inspect.  Under overload, requests wait in the socket
buffers, and for other connections that were ready at the same time.
Only the header fields that a response needs are decoded; the rest of the header is not checked.
Source: RocketMQ 5.3.3, `BrokerFastFailure`.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Final

import msgspec

from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, Frames
from sprocket.remoting.headers.base import Int
from sprocket.remoting.routes import Overload, RouteTable, Traffic

# A smaller read does not overload a server, and a pause of its own is no overload.
LARGE_READ_BYTES: Final = 16 * 1024


class _Address(msgspec.Struct, gc=False):
    """The fields of a JSON header that a response needs."""

    flag: Int = 0
    opaque: Int = 0


_CLASSES: Final = tuple(Traffic)
_PREFIX_BYTES: Final = 8
_decode: Final = msgspec.json.Decoder(_Address, strict=False).decode
_decode_all: Final = msgspec.json.Decoder(list[_Address], strict=False).decode
# In a ROCKETMQ header, opaque and flag follow code, language and version.
_BINARY_ADDRESS: Final = struct.Struct(">ii")
_BINARY_ADDRESS_AT: Final = 5


def shed(frames: Frames, table: RouteTable, overload: Overload, waited_s: float) -> tuple[Frames, bytes]:
    """Return the frames of one read to serve, and the encoded responses to the others.

    The first frames of each class are served, at least one.  The others are counted as refused.
    """
    # Pairs, not a mapping: hashing an Enum takes as long as a verdict.
    count = len(frames)
    late = [(traffic, one) for traffic in _CLASSES if (one := overload(traffic, waited_s, count))[0] < 1.0]
    if not late:
        return frames, b""
    entries = table.entries_of(frames)
    answers: list[bytes] = []
    gone: set[int] = set()
    for traffic, (share, reason) in late:
        # By identity: hashing an Enum takes as long as all the rest.
        of_class = [index for index, one in enumerate(entries) if one is not None and one.traffic is traffic]
        chosen = of_class[ceil(len(of_class) * share) :]
        opaques: dict[int, list[int]] = {JSON: [], ROCKETMQ: []}
        for index, address in zip(chosen, _addresses([frames[index] for index in chosen]), strict=True):
            if address is None or address.flag & FLAG_RESPONSE:
                continue
            gone.add(index)
            if not address.flag & FLAG_ONEWAY:
                opaques[frames[index][0]].append(address.opaque)
        template = ResponseTemplate(ResponseCode.SYSTEM_BUSY, (), remark=reason)
        answers += [_answers(template, kind, some) for kind, some in opaques.items() if some]
    # By entry: hashing an Enum, such as a code, takes longer.
    for entry, requests in Counter([entries[index] for index in gone]).items():
        assert entry is not None
        table.refusals.count(Reason.OVERLOAD, entry.code, requests)
    return [frame for index, frame in enumerate(frames) if index not in gone], b"".join(answers)


def _addresses(frames: Sequence[Frame]) -> Sequence["_Address | None"]:
    """Return the address of each frame, None where it has none.

    One call decodes all of them, because refusing must be far cheaper than serving.
    """
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
    # All opaques between them have the same length.
    one = first[:_PREFIX_BYTES].replace(b"%", b"%%") + template.json_format
    return one * len(opaques) % tuple(opaques)


def _address(frame: Frame) -> _Address | None:
    serialization, header, _ = frame
    try:
        if serialization == JSON:
            return _decode(header)
        opaque, flag = _BINARY_ADDRESS.unpack_from(header, _BINARY_ADDRESS_AT)
        return _Address(flag, opaque)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error):
        return None
