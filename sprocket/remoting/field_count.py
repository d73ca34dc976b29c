"""Bound of the number of fields in the headers of one read."""

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.codec_json import decode_header
from sprocket.remoting.framing import JSON, Frame, FrameDecoder


def with_few_fields(frames: list[Frame], decoder: FrameDecoder) -> list[Frame]:
    """Return the frames before the first whose JSON header has too many fields; that one fails `decoder`.

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
