"""Reading what servers answer: what cannot be read is a ClientError, as whatever else goes wrong with a server."""

from typing import TypeVar

import msgspec

from remoting.command import ReceivedResponse
from remoting.fastjson import loads
from remoting.headers.base import Header
from sprocket.client.errors import AnswerUnreadable
from sprocket.common.errors import ClientError, ProtocolError

T = TypeVar("T")
H = TypeVar("H", bound=Header)


def header_of(response: ReceivedResponse, kind: type[H], error: type[ClientError] = AnswerUnreadable) -> H:
    """The header fields of `response` as `kind`; raises `error` when they do not fit."""
    try:
        return response.header(kind)
    except msgspec.ValidationError as reason:
        raise error(f"the answer's header is no {kind.__name__}: {reason}") from None


def body_of(body: bytes, kind: type[T], error: type[ClientError] = AnswerUnreadable) -> T:
    """`body` as `kind`; raises `error` when it is none."""
    try:
        return loads(body, kind)
    except (ProtocolError, msgspec.ValidationError) as reason:
        raise error(f"the answer is no {kind.__name__}: {reason}") from None
