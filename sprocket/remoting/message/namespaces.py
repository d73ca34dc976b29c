"""Namespaces: the first part of the name of a topic or group, which says whose it is.  Pure.

``shop|orders%Paid`` is topic Paid of namespace orders of tenant shop, ``orders%Paid`` that of a namespace without a
tenant.  In names of retry topics, dead-letter topics and light queues, the namespace follows the prefix of these:
``%RETRY%shop|orders%Billing``, ``%LMQ%$shop|orders%Chats$one``.
Source: RocketMQ 5.3.3, `NamespaceUtil`; tenants are those of RocketMQ on Pulsar.
"""

import re
from typing import Final

from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    LIGHT_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR: Final = "%"
TENANT_SEPARATOR: Final = "|"
MAX_CHARS: Final = 64
# The prefix of a lite topic has a dollar sign, which no other name has.
_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, LIGHT_PREFIX + "$", LIGHT_PREFIX)
_LEGAL: Final = re.compile(r"(?:[a-zA-Z0-9_-]+\|)?[a-zA-Z0-9_-]+")


def namespace_problem(namespace: str) -> str | None:
    """Return what is wrong with the name of a namespace; None for a legal one."""
    if len(namespace) > MAX_CHARS:
        return f"a namespace has at most {MAX_CHARS} characters, tenant included"
    if _LEGAL.fullmatch(namespace) is None:
        return (
            f"{namespace[:MAX_CHARS]!r} is no namespace: write orders or, with a tenant, shop|orders; "
            "letters, digits, - and _ are allowed"
        )
    return None


def namespace_of(name: str) -> str:
    """Return the namespace in the name of a topic or group, ``shop|orders``; the empty text without one."""
    namespace, separator, _ = _bare(name)[1].partition(SEPARATOR)
    return namespace if separator else ""


def with_namespace(namespace: str, name: str) -> str:
    """Return the whole name of a topic or group of `namespace`.

    Names that have it already, those of the system, and empty ones stay as they are; so does every name if the
    namespace is empty.
    """
    if not namespace or not name or _is_system(name) or namespace_of(name) == namespace:
        return name
    prefix, bare = _bare(name)
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the name of a topic or group as those in `namespace` write it; names of others stay as they are."""
    if not namespace:
        return name
    prefix, bare = _bare(name)
    start = namespace + SEPARATOR
    return prefix + bare.removeprefix(start) if bare.startswith(start) else name


def _bare(name: str) -> tuple[str, str]:
    """Return the prefix of a retry topic, dead-letter topic or light queue, else an empty text, and the rest."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name in SYSTEM_GROUPS or name.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))
