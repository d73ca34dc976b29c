"""Opens frames for who has to look at what they say before they go to a route: a gate.

What comes out is what `open_frame` makes of a frame; headers of the usual forms are read in one step.
"""

from typing import Any, Final

import msgspec

from sprocket.common import limits
from sprocket.remoting.codec.typed_binary import OpenBinaryDecoder
from sprocket.remoting.command import FLAG_RESPONSE, ReceivedResponse, Request
from sprocket.remoting.framing import JSON, Frame
from sprocket.remoting.routes import open_frame

_decode: Final = msgspec.json.Decoder(Request[dict[str, str] | None], strict=False).decode


class FrameOpener:
    """Remembers the forms of headers that come again.  Lives in one thread."""

    __slots__ = ("_binary",)

    def __init__(self) -> None:
        self._binary = OpenBinaryDecoder().request

    def open(self, frame: Frame) -> ReceivedResponse | tuple[Request[Any], dict[str, str]]:
        """A response, or a request with its fields; its header is for a route to set.  Raises ProtocolError."""
        serialization, header, body = frame
        if serialization != JSON:
            usual = self._binary(header, body)
            return open_frame(frame) if usual is None else (usual, usual.header)
        try:
            request = _decode(header)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return open_frame(frame)
        fields = request.header
        if fields is None or request.flag & FLAG_RESPONSE or len(fields) > limits.MAX_EXT_FIELDS:
            return open_frame(frame)
        # Whatever a header says by their names.
        request.body, request.channel, request.access = body, None, None
        return request, fields
