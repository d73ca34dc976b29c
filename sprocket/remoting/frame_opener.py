"""Decoder of frames for a gate, which must see the header fields before a route does.

It returns what `open_frame` returns, but decodes usual JSON headers in one step.
"""

from typing import Any, Final

import msgspec

from sprocket.common import limits
from sprocket.remoting.command import FLAG_RESPONSE, ReceivedResponse, Request
from sprocket.remoting.framing import JSON, Frame
from sprocket.remoting.routes import open_frame

_decode: Final = msgspec.json.Decoder(Request[dict[str, str] | None], strict=False).decode


def open_for_gate(frame: Frame) -> ReceivedResponse | tuple[Request[Any], dict[str, str]]:
    """Return a response, or a request with its fields.  A route sets the header.  Raises as `open_frame`."""
    serialization, header, body = frame
    if serialization != JSON:
        return open_frame(frame)
    try:
        request = _decode(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return open_frame(frame)
    fields = request.header
    if fields is None or request.flag & FLAG_RESPONSE or len(fields) > limits.MAX_EXT_FIELDS:
        return open_frame(frame)
    # A header may hold their wire names.
    request.body, request.channel, request.access = body, None, None
    return request, fields
