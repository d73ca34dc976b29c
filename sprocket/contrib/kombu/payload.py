"""A message of kombu as a message of a topic, and back.

The body is the JSON that kombu's virtual transports share.  A task's id is the key, so that an operator finds it.
"""

from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import dumps, loads

from sprocket.client.message import Message
from sprocket.contrib.kombu.names import tag_of

# The longest delay that brokers take by default (timerMaxDelaySec).
MAX_DELAY_MS = 3 * 86_400 * 1000
# Brokers deliver at whole seconds; less is now.
_MIN_DELAY_MS = 1000

Payload = dict[str, Any]


class ForeignMessage(ValueError):
    """A message that was not sent by kombu's virtual transports."""


def encoded(topic: str, payload: Payload, routing_key: str, now_ms: int, *, has_priority: bool) -> Message:
    """Return the message for a payload of kombu.

    A task with an `eta` is delivered then, at most three days later; a worker holds it for the rest.  Such a message
    has no priority.  Raises IllegalMessage.
    """
    headers = payload.get("headers") or {}
    properties = payload["properties"]
    task_id = str(headers.get("id") or properties.get("correlation_id") or "")
    at_ms = _eta_ms(headers)
    priority = None
    if at_ms is not None:
        at_ms = min(at_ms, now_ms + MAX_DELAY_MS)
        if at_ms - now_ms < _MIN_DELAY_MS:
            at_ms = None
    if at_ms is None and has_priority:
        priority = max(int(properties.get("priority") or 0), 0)
    return Message(
        topic,
        dumps(payload).encode(),
        tags=tag_of(routing_key),
        keys=[task_id] if task_id and " " not in task_id else (),
        deliver_at=at_ms,
        priority=priority,
    )


def _eta_ms(headers: Mapping[str, Any]) -> int | None:
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        at = datetime.fromisoformat(eta)
    except ValueError:
        return None
    # Celery writes times without a zone in UTC.
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def decoded(body: bytes) -> Payload:
    """Return the payload of a message, with fields of the types that kombu relies on.  Raises ForeignMessage."""
    try:
        return _checked(loads(body))
    except Exception as error:  # an application may register decoders for parts of the JSON, which raise anything
        raise ForeignMessage(f"not a message of kombu: {type(error).__name__}: {error}") from None


def _checked(payload: Payload) -> Payload:
    properties = payload["properties"]
    info: dict[str, Any] = properties["delivery_info"]
    texts = {"exchange": info["exchange"], "body": payload["body"]}
    texts |= {"routing_key": info.get("routing_key"), "body_encoding": properties.get("body_encoding")}
    texts |= {name: payload.get(name) for name in ("content-type", "content-encoding")}
    for name, value in texts.items():
        if not isinstance(value, str if name == "body" else str | None):
            raise TypeError(f"{name} is no text but {value!r:.100}")
    if not isinstance(payload.get("headers"), dict | None):
        raise TypeError("headers is no mapping")
    if texts["body_encoding"] == "base64":
        b64decode(texts["body"])
    elif (texts["body_encoding"] or "utf-8").lower() != "utf-8":
        raise ValueError(f"body_encoding is {texts['body_encoding']!r:.100}; there are utf-8 and base64")
    return payload


def is_expired(payload: Payload, born_ms: int, now_ms: int, ttl_ms: int | None) -> bool:
    """Return whether the time of a message, or of the messages of its queue (`x-message-ttl`), is over."""
    given = payload["properties"].get("expiration")
    times = [] if ttl_ms is None else [ttl_ms]
    if given is not None:
        with suppress(TypeError, ValueError, OverflowError):
            times.append(int(given))
    return bool(times) and now_ms - born_ms >= min(times)
