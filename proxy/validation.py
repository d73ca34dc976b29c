"""Checks of names, tags and times in requests.

Source: RocketMQ 5.5.0, `GrpcValidator`, `Validators`, `TopicValidator`, `MixAll.isSysConsumerGroup`.
"""

import re
from functools import lru_cache
from typing import Final

from proxy.convert.resources import full_name
from proxy.status import Refusal
from sprocket.client.arguments import check_group, check_topic
from sprocket.client.errors import IllegalMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message.lite_topics import is_legal_lite_topic
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

# Legal names that need no second check.
_KNOWN: Final = 4096
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


def topic_of(resource: wire.Resource) -> str:
    """Return the name of a topic that clients may use.  Raises Refusal."""
    return _topic(full_name(resource))


@lru_cache(_KNOWN)
def _topic(name: str) -> str:
    try:
        check_topic(name)
    except IllegalMessage as error:
        raise Refusal(wire.ILLEGAL_TOPIC, str(error)) from None
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        raise Refusal(wire.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def check_lite_topic(name: str, max_bytes: int) -> None:
    """Raise Refusal for a name that no lite topic has."""
    if not name.strip():
        raise Refusal(wire.ILLEGAL_LITE_TOPIC, "lite topic cannot be the char sequence of whitespace")
    if len(name.encode()) > max_bytes:
        raise Refusal(wire.ILLEGAL_LITE_TOPIC, f"lite topic exceed the max size {max_bytes}")
    if not is_legal_lite_topic(name):
        what = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
        raise Refusal(wire.ILLEGAL_LITE_TOPIC, what)


def group_of(resource: wire.Resource) -> str:
    """Return the name of a consumer group that clients may use.  Raises Refusal."""
    return _group(full_name(resource))


@lru_cache(_KNOWN)
def _group(name: str) -> str:
    try:
        check_group(name)
    except IllegalMessage as error:
        raise Refusal(wire.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refusal(wire.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name


def has_control_character(text: str) -> bool:
    """Return whether `text` has a character that Java calls an ISO control character."""
    # Most texts are printable, and this test costs a tenth of a search.
    return not text.isprintable() and _CONTROL.search(text) is not None


def check_text(text: str, code: "wire.Code", what: str) -> None:
    """Refuse white space alone and control characters; the empty text is allowed.  Raises Refusal with `code`."""
    if not text:
        return
    if not text.strip():
        raise Refusal(code, f"{what} cannot be the char sequence of whitespace")
    if has_control_character(text):
        raise Refusal(code, f"{what} cannot contain control character")


def check_tag(tag: str) -> None:
    """Raise Refusal for a tag that a message cannot have."""
    if "|" in tag:
        raise Refusal(wire.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    check_text(tag, wire.ILLEGAL_MESSAGE_TAG, "tag")


def check_invisible(invisible_ms: int, min_ms: int, max_ms: int) -> None:
    """Raise Refusal for an invisible time out of range; a `max_ms` of 0 is no limit."""
    if invisible_ms < min_ms:
        raise Refusal(wire.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {min_ms}")
    if 0 < max_ms < invisible_ms:
        raise Refusal(wire.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {max_ms}")
