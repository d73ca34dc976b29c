"""Decoding of responses; one that cannot be decoded is a ClientError, like any other failure of a server."""

from typing import TypeVar

import msgspec

from sprocket.client.errors import AnswerUnreadable
from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.bodies.route import TopicRouteData, read_route
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header

T = TypeVar("T")
H = TypeVar("H", bound=Header)


def header_of(response: ReceivedResponse, kind: type[H], error: type[ClientError] = AnswerUnreadable) -> H:
    """Return the header fields of `response` as `kind`; raises `error` when they do not fit."""
    try:
        return response.header(kind)
    except msgspec.ValidationError as reason:
        raise error(f"the answer's header is no {kind.__name__}: {reason}") from None


def route_of(body: bytes, topic: str, error: type[ClientError] = AnswerUnreadable) -> TopicRouteData:
    """Return `body` as the route of `topic`; raises `error` when it is none, or too large."""
    try:
        return read_route(body)
    except (ProtocolError, msgspec.ValidationError) as reason:
        raise error(f"the route of topic {topic} is refused: {reason}") from None


def body_of(body: bytes, kind: type[T], error: type[ClientError] = AnswerUnreadable) -> T:
    """Return `body` as `kind`; raises `error` when it is none."""
    try:
        return loads(body, kind)
    except (ProtocolError, msgspec.ValidationError) as reason:
        raise error(f"the answer is no {kind.__name__}: {reason}") from None
