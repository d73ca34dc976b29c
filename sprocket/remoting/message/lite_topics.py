"""Names of lite topics: a lite topic is the light queue ``%LMQ%$parent$lite``, queue 0.

Source: RocketMQ 5.5.1, `LiteUtil`, `LiteShardingImpl`.
"""

import re
from typing import Final

from sprocket.remoting.message.topic_names import LIGHT_PREFIX

SEPARATOR = "$"
LITE_PREFIX = LIGHT_PREFIX + SEPARATOR
# `GrpcValidator.isValidLiteTopic`
_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,240}")


def lite_queue(parent: str, lite: str) -> str:
    """Return the name of the light queue of the lite topic `lite` under `parent`."""
    return f"{LITE_PREFIX}{parent}{SEPARATOR}{lite}"


def is_lite_queue(name: str) -> bool:
    """Return whether a light queue is that of a lite topic, or looks like one."""
    return name.startswith(LITE_PREFIX)


def parent_and_lite(name: str) -> tuple[str, str] | None:
    """Return parent and lite topic of a light queue; None if it is not the queue of a lite topic."""
    if not is_lite_queue(name):
        return None
    parent, separator, lite = name[len(LITE_PREFIX) :].partition(SEPARATOR)
    return (parent, lite) if parent and lite and separator and SEPARATOR not in lite else None


def is_legal_lite_topic(lite: str) -> bool:
    """Return whether a lite topic may have this name: at most 240 letters, digits, hyphens and underscores.

    RocketMQ's proxy has a limit of 64 bytes, which is a key of its configuration.  The light queue is a directory.
    """
    return _LEGAL.fullmatch(lite) is not None
