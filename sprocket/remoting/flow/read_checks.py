"""Checks of the frames of a read before a handler gets any of them: their number of fields, and a server's guard."""

from typing import Any

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.framing import JSON, Frame, FrameDecoder, Frames
from sprocket.remoting.refusals import refusal_of
from sprocket.remoting.routes import AdmittedFrame, Guard, UnroutableRequest, open_frame


def with_few_fields(decoder: FrameDecoder, frames: Frames, channel: Any) -> Frames:
    """Return the frames whose JSON headers have few fields, and refuse the other requests.

    The decoders of routes cannot tell: they skip fields that they do not know.
    """
    decoder.note_checked()
    found: list[Frame] = []
    for frame in frames:
        serialization, header, _ = frame
        if serialization == JSON and header.count(b",") >= limits.MAX_EXT_FIELDS:
            try:
                open_frame(frame)
            except UnroutableRequest as error:
                channel.reply(error.request, refusal_of(error))
                continue
            except ProtocolError as error:
                # Takes effect after the frames before it have their responses.
                decoder.fail(error)
                break
        found.append(frame)
    return found


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
