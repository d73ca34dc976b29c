"""Rules for the names of topics and groups.

The texts are part of responses, so they are RocketMQ's.  Source: RocketMQ 5.3.3, 5.5.1, `TopicValidator`, `Validators`.
"""

import re
from typing import Final

from sprocket.common.limits import MAX_GROUP_CHARS, MAX_NEW_GROUP_CHARS, MAX_TOPIC_CHARS

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]*")


def illegal_topic(topic: str) -> str | None:
    """Return why `topic` is no legal topic name; None if it is one."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_TOPIC_CHARS:
        return "The specified topic is longer than topic max length."
    return None


def illegal_group(group: str) -> str | None:
    """Return why `group` is no legal group name; None if it is one."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > MAX_GROUP_CHARS:
        return f"the specified group is longer than group max length {MAX_GROUP_CHARS}."
    if not _LEGAL.fullmatch(group):
        return f"the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def illegal_new_group(group: str) -> str | None:
    """Return why no group `group` may be created; one that is there goes on, unless `illegal_group` says no."""
    reason = illegal_group(group)
    if reason is None and len(group) > MAX_NEW_GROUP_CHARS:
        return f"The specified group: {group}, is longer than group max length: {MAX_NEW_GROUP_CHARS}"
    return reason
