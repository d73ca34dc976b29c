"""Checks of the frames of a read before a handler gets any of them: their number of fields, and a server's guard."""

from typing import Any

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.codec_json import decode_header
from sprocket.remoting.framing import JSON, Frame, FrameDecoder, Frames
from sprocket.remoting.routes import AdmittedFrame, Guard


def with_few_fields(decoder: FrameDecoder, frames: Frames) -> Frames:
    """Return the frames before the first whose JSON header has too many fields; that one ends the connection.

    The decoders of routes cannot tell: they skip fields that they do not know.
    """
    decoder.note_checked()
    for index, (serialization, header, _) in enumerate(frames):
        if serialization == JSON and header.count(b",") >= limits.MAX_EXT_FIELDS:
            try:
                decode_header(header)
            except ProtocolError as error:
                if error.kind == "ext_fields":
                    decoder.fail(error)
                    return frames[:index]
    return frames


def admitted(guard: Guard, decoder: FrameDecoder, frames: Frames, channel: Any) -> list[Frame]:
    """Return the frames that `guard` admits, before the first that is no request; that one ends the connection."""
    found: list[Frame] = []
    for frame in frames:
        if isinstance(frame, AdmittedFrame):  # in an earlier turn
            found.append(frame)
            continue
        try:
            decoded = guard(frame, channel)
        except ProtocolError as error:
            # Takes effect after the frames before it have their responses.
            decoder.fail(error)
            break
        if decoded is not None:
            admitted_frame = AdmittedFrame(frame)
            admitted_frame.decoded = decoded
            found.append(admitted_frame)
    return found
