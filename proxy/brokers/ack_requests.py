"""Requests that acknowledge one message.  They are frequent, so most of each is encoded only once; pure."""

from functools import lru_cache
from typing import Final

import msgspec

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import request_prefix
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.message.pop_extra_info import PopHandle
from sprocket.remoting.request_format import request_format

_encode_text: Final = msgspec.json.Encoder().encode
# In the order of the header's fields.
_FORMATS: Final = {"queueId": b'"%d"', "extraInfo": b"%b", "offset": b'"%d"'}
_KNOWN: Final = 1024


def ack_header(
    group: str, stored_topic: str, handle: PopHandle, offset: int, lite_topic: str | None = None
) -> AckMessageRequestHeader:
    """Return the header that acknowledges the message at `offset`."""
    return AckMessageRequestHeader(
        consumer_group=group, topic=stored_topic, queue_id=handle.queue_id, extra_info=handle.encode(), offset=offset,
        lite_topic=lite_topic,
    )  # fmt: skip


def encoded_ack(group: str, stored_topic: str, handle: PopHandle, offset: int, opaque: int) -> bytes:
    """Return the frame of the request; it is that of `encode_request` with `ack_header`.  Raises FrameTooLarge."""
    numbers = handle.queue_id, _encode_text(handle.encode()), offset, opaque
    header = _format(group, stored_topic) % numbers
    return request_prefix(JSON, len(header), 0) + header


@lru_cache(_KNOWN)
def _format(group: str, stored_topic: str) -> bytes:
    fields = to_ext_fields(ack_header(group, stored_topic, PopHandle(0, 0, 0, 0, "0", "", 0), 0))
    return request_format(RequestCode.ACK_MESSAGE, fields, _FORMATS)
