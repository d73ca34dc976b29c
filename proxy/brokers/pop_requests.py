"""Requests that pop messages.  They are frequent, so most of each is encoded only once; pure."""

from functools import lru_cache
from typing import Final

import msgspec

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import request_prefix
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.request_format import request_format

_encode_text: Final = msgspec.json.Encoder().encode
# In the order of the header's fields.
_FORMATS: Final = {"maxMsgNums": b'"%d"', "invisibleTime": b'"%d"', "pollTime": b'"%d"', "attemptId": b"%b"}
_KNOWN: Final = 1024


def encoded_pop(header: PopMessageRequestHeader, opaque: int) -> bytes:
    """Return the frame of the request; it is that of `encode_request`.  Raises FrameTooLarge."""
    attempt_id = header.attempt_id
    pattern = _format(
        header.consumer_group, header.topic, header.queue_id, header.born_time, header.init_mode, header.exp_type,
        header.exp, header.order, attempt_id is None, header.broker_name,
    )  # fmt: skip
    numbers = header.max_msg_nums, header.invisible_time, header.poll_time
    values = (*numbers, opaque) if attempt_id is None else (*numbers, _encode_text(attempt_id), opaque)
    encoded = pattern % values
    return request_prefix(JSON, len(encoded), 0) + encoded


@lru_cache(_KNOWN)
def _format(
    group: str,
    topic: str,
    queue_id: int,
    born_time: int,
    init_mode: int,
    exp_type: str | None,
    exp: str | None,
    order: bool | None,
    has_no_attempt: bool,
    broker_name: str | None,
) -> bytes:
    header = PopMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, max_msg_nums=0, invisible_time=0, poll_time=0,
        born_time=born_time, init_mode=init_mode, exp_type=exp_type, exp=exp, order=order,
        attempt_id=None if has_no_attempt else "", broker_name=broker_name,
    )  # fmt: skip
    return request_format(RequestCode.POP_MESSAGE, to_ext_fields(header), _FORMATS)
