"""Attributes of topics: a fixed set of names, changed by ``+name=value`` and ``-name``.

Source: RocketMQ 5.3.3, `TopicAttributes`, `AttributeUtil`, `AttributeParser`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode

MESSAGE_TYPE = "message.type"
QUEUE_TYPE = "queue.type"
# Hours for which consumers may read a message of the topic.
RESERVE_TIME = "reserve.time"
# Number of newest bytes of each queue of the topic that consumers may read.  Not in RocketMQ.
RETENTION_BYTES = "retention.bytes"


@dataclass(frozen=True)
class Attribute:
    """Allowed values of one attribute."""

    is_allowed: Callable[[str], bool]
    allowed: str
    changeable: bool


def _one_of(*values: str, changeable: bool) -> Attribute:
    return Attribute(values.__contains__, "one of " + ", ".join(values), changeable)


def _is_bound(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and -1 <= int(text) < 1 << 63


def bound(attributes: Mapping[str, str] | None, name: str) -> int | None:
    """Return the limit that an attribute sets; None if it is not set, or is -1 or 0, which mean no limit."""
    text = (attributes or {}).get(name, "")
    return int(text) if _is_bound(text) and int(text) > 0 else None


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: _one_of("BatchCQ", "SimpleCQ", changeable=False),
    "cleanup.policy": _one_of("DELETE", "COMPACTION", changeable=False),
    MESSAGE_TYPE: _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", changeable=True),
    # The unit is hours, as in RocketMQ's tiered storage, the only part of RocketMQ that reads the attribute.
    RESERVE_TIME: Attribute(_is_bound, "a number of hours, or -1", True),
    RETENTION_BYTES: Attribute(_is_bound, "a number of bytes, or -1", True),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Parse ``+a=1,-b`` to ``{"+a": "1", "-b": ""}``.  Raises RequestError."""
    changes: dict[str, str] = {}
    for part in (text or "").split(",") if text else []:
        key, separator, value = part.partition("=")
        sign = "+" if separator else "-"
        if sign not in key or not key[1:]:
            action = "add/alter" if separator else "delete"
            raise _refusal(f"{action} attribute format is wrong: {key}")
        if key in changes:
            raise _refusal(f"key duplication: {key}")
        changes[key] = value
    return changes


def altered(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a topic after `changes`; `current` is None for a topic that is being created.

    Raises RequestError for an unknown name, or a value or change that is not allowed.
    """
    if changes.get("+cleanup.policy") == "COMPACTION":
        # Refused, because this broker keeps every message, which would break the topic's promise.
        raise RequestError(ResponseCode.INVALID_PARAMETER, "cleanup.policy=COMPACTION is not supported by this broker")
    result = dict(current or {})
    seen: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise _refusal("kv string format wrong.")
        if name in seen:
            raise _refusal(f"alter duplication key. key: {name}")
        seen.add(name)
        if sign == "+":
            _check(name, value, creating=current is None)
            result[name] = value
        elif current is None:
            raise _refusal(f"only add attribute is supported while creating topic. key: {name}")
        elif sign != "-":
            raise _refusal(f"wrong format key: {name}")
        else:
            if name not in current:
                raise _refusal(f"attempt to delete a nonexistent key: {name}")
            _check(name, None, creating=False)
            del result[name]
    return result


def _check(name: str, value: str | None, *, creating: bool) -> None:
    attribute = TOPIC_ATTRIBUTES.get(name)
    if attribute is None:
        raise _refusal(f"unsupported key: {name}")
    if not creating and not attribute.changeable:
        raise _refusal(f"attempt to update an unchangeable attribute. key: {name}")
    if value is not None and not attribute.is_allowed(value):
        raise _refusal(f"{name}={value}: allowed is {attribute.allowed}")


def _refusal(remark: str) -> RequestError:
    # RocketMQ responds with this code, because it throws an exception here.
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
