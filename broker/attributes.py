"""Attributes of topics and groups: fixed sets of names, changed by ``+name=value`` and ``-name``.

Source: RocketMQ 5.3.3, `AttributeUtil`, `AttributeParser`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode


@dataclass(frozen=True)
class Attribute:
    """Allowed values of one attribute."""

    is_allowed: Callable[[str], bool]
    allowed: str
    changeable: bool


def one_of(*values: str, changeable: bool) -> Attribute:
    """Return an attribute with one of some values."""
    return Attribute(values.__contains__, "one of " + ", ".join(values), changeable)


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


def altered(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """Return the attributes of a topic or group after `changes`; `current` is None for one that is being created.

    Raises RequestError for an unknown name, or a value or change that is not allowed.
    """
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
            _check(known, name, value, creating=current is None)
            result[name] = value
        elif current is None:
            raise _refusal(f"only add attribute is supported while creating topic. key: {name}")
        elif sign != "-":
            raise _refusal(f"wrong format key: {name}")
        else:
            if name not in current:
                raise _refusal(f"attempt to delete a nonexistent key: {name}")
            _check(known, name, None, creating=False)
            del result[name]
    return result


def _check(known: Mapping[str, Attribute], name: str, value: str | None, *, creating: bool) -> None:
    attribute = known.get(name)
    if attribute is None:
        raise _refusal(f"unsupported key: {name}")
    if not creating and not attribute.changeable:
        raise _refusal(f"attempt to update an unchangeable attribute. key: {name}")
    if value is not None and not attribute.is_allowed(value):
        raise _refusal(f"{name}={value}: allowed is {attribute.allowed}")


def _refusal(remark: str) -> RequestError:
    # RocketMQ responds with this code, because it throws an exception here.
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
