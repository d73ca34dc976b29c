"""The handle with which a message that waits in the timer wheel is recalled.

URL-safe Base64 of ``v1 <topic> <broker> <time> <unique key>``; the time, in ms, is within the message's slot.
Source: RocketMQ 5.3.3, `RecallMessageHandle`, `SendMessageProcessor.attachRecallHandle`.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.topic_names import RETRY_PREFIX

_VERSION: Final = "v1"
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FIELDS: Final = 5
_MAX_BYTES: Final = 4096
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")
_OUT_MS: Final = names.encoded_name(names.TIMER_OUT_MS)
_REAL_TOPIC: Final = names.encoded_name(names.REAL_TOPIC)


class RecallHandle(NamedTuple):
    """Content of a handle.  `deliver_ms` is -1 if the field is no number."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the handle as clients hold it."""
        fields = (_VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.unique_key)
        return _url_safe(" ".join(fields).encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """Decode a handle.  Raises ValueError if it is invalid."""
        if not handle or len(handle) > _MAX_BYTES or re.search(r"[^A-Za-z0-9_=-]", handle):
            raise ValueError("recall handle is invalid")
        try:
            # Java's decoder also accepts a handle without padding.
            content = base64.urlsafe_b64decode(handle.rstrip("=") + "=" * (-len(handle.rstrip("=")) % 4))
        except (binascii.Error, ValueError):
            raise ValueError("recall handle is invalid") from None
        items = java_text(content).split(" ")
        if items[0] != _VERSION or len(items) < _FIELDS:
            raise ValueError("recall handle is invalid")
        _, topic, broker_name, time, unique_key, *_ = items
        return cls(topic, broker_name, int(time) if _LONG.fullmatch(time) else -1, unique_key)


def handle_text(topic: bytes, broker_name: bytes, slot_ms: int, unique_key: bytes) -> bytes:
    """Return the handle, as clients hold it, of a message in the slot that begins at `slot_ms`."""
    # 1 ms into the slot, because the recall's own time is rounded down as well.
    content = b"%b %b %b %d %b" % (_VERSION.encode(), topic, broker_name, slot_ms + 1, unique_key)
    return _url_safe(content)


def _url_safe(content: bytes) -> bytes:
    # The result of `base64.urlsafe_b64encode`, in half the time.
    return binascii.b2a_base64(content, newline=False).translate(_URL_SAFE)


def handle_of(properties: bytes, broker_name: str, unique_key: bytes) -> bytes | None:
    """Return the handle of a stored message of the wheel; None for a consumer's retry, which cannot be recalled."""
    out_ms, topic = find_last(properties, _OUT_MS), find_last(properties, _REAL_TOPIC)
    if out_ms is None or topic is None or topic.startswith(RETRY_PREFIX.encode()):
        return None
    return handle_text(topic, broker_name.encode(), int(out_ms), unique_key)
