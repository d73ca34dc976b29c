"""Files of plans, as RocketMQ's mqadmin writes and reads them with -mf.

Source: RocketMQ 5.3.3, `TopicQueueMappingUtils.writeToTemp`, `TopicRemappingDetailWrapper`; fastjson 1.2,
`SerialContext`: an item that stands in two lists is written once, and then as ``{"$ref": PATH}``.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.plan import TopicRemappingDetailWrapper

_REFERENCE: Final = "$ref"
# A part of a path: ``.name``, with a backslash before special characters, or ``[number]``.
_PART: Final = re.compile(r"\.((?:[^\\.\[]|\\.)+)|\[(\d+)\]")


def file_name(plan: TopicRemappingDetailWrapper, *, is_after: bool) -> str:
    """Return the name of a plan's file: ``TOPIC-EPOCH.before`` has the state before a change, ``.after`` that after."""
    return f"{plan.topic}-{plan.epoch}{'.after' if is_after else '.before'}"


def plan_bytes(plan: TopicRemappingDetailWrapper) -> bytes:
    """Return the content of a plan's file: JSON with every key in quotes, which RocketMQ reads, too."""
    return dumps(plan, standard=True)


def read_plan(data: bytes) -> TopicRemappingDetailWrapper:
    """Return the plan in a file's content.  Raises MappingError."""
    try:
        content = loads(data, dict[str, Any])
        for items in _lists(content):
            items[:] = [_target(content, item) for item in items]
        return msgspec.convert(content, TopicRemappingDetailWrapper, strict=False)
    except (ProtocolError, msgspec.ValidationError) as error:
        raise MappingError(f"no plan for a static topic: {error}") from None


def _lists(content: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the lists of items of all brokers."""
    for config in _values(content.get("brokerConfigMap")):
        for detail in _values(config):
            for hosted in _values(detail):
                yield from (items for items in _values(hosted) if isinstance(items, list))


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _target(content: dict[str, Any], item: object) -> object:
    """Return `item`, or the one that it refers to.  Raises MappingError for a reference that leads to no item."""
    if not isinstance(item, dict) or _REFERENCE not in item:
        return item
    path = str(item[_REFERENCE])
    found: object = content
    for name, number in _PART.findall(path):
        if isinstance(found, list):
            found = found[int(number)] if number and int(number) < len(found) else None
        else:
            found = found.get(number or re.sub(r"\\(.)", r"\1", name)) if isinstance(found, dict) else None
    if _PART.sub("", path) != "$" or not isinstance(found, dict) or _REFERENCE in found:
        raise MappingError(f"no plan for a static topic: {_REFERENCE} {path!r} leads to no item")
    return found
