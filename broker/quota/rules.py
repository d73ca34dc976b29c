"""Rules of quotas: which quotas are valid, and which one holds for a resource.  Pure.

A dimension is a kind of name that a request has.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from broker.quota.bucket import Kind
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.namespaces import SEPARATOR
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

_MAX_NAME_CHARS: Final = 255
_MAX_VALUE: Final = 1 << 53
_MAX_BURST_MS: Final = 60_000
_ANY: Final = "*"
# What of a cluster-wide limit is divided evenly.
_EVEN: Final = 0.2


class Dimension(Enum):
    """Kind of resource that has quotas; the value begins the name of a quota."""

    ACCOUNT = "account"
    TOPIC = "topic"
    GROUP = "group"
    ADDRESS = "address"
    NAMESPACE = "namespace"
    TENANT = "tenant"


_IN_AND_OUT: Final = frozenset(kind.value for kind in Kind)
# Limits of each dimension.  A consumer group does not send.
_LIMITS: Final = {
    Dimension.ACCOUNT: _IN_AND_OUT,
    Dimension.TOPIC: _IN_AND_OUT | {"storage_bytes"},
    Dimension.GROUP: frozenset({"messages_out", "bytes_out", "requests", "backlog_messages"}),
    Dimension.ADDRESS: _IN_AND_OUT,
    Dimension.NAMESPACE: _IN_AND_OUT,
    Dimension.TENANT: _IN_AND_OUT,
}
_ALL_LIMITS: Final = frozenset.union(*_LIMITS.values())


def is_exempt(topic: str) -> bool:
    """Return whether no quota holds for a topic: those of the broker, of retries and of dead letters.

    A message that is retried was counted when it was sent first.
    """
    return topic in SYSTEM_TOPICS or topic.startswith((SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX))


def is_exempt_group(group: str) -> bool:
    """Return whether no quota holds for a group: those of the broker."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def name_within(quota_name: str) -> str:
    """Return a name in the namespace in which all resources of a quota are; one in no namespace if they are not."""
    dimension, _, pattern = quota_name.partition(":")
    if dimension == Dimension.NAMESPACE.value:
        return pattern + SEPARATOR
    return "" if dimension in (Dimension.TENANT.value, Dimension.ADDRESS.value) else pattern


def check(quota: Quota) -> None:
    """Raise RequestError unless the quota is valid."""
    dimension, _, pattern = quota.name.partition(":")
    known = ", ".join(one.value for one in Dimension)
    if dimension not in {one.value for one in Dimension} or not pattern:
        raise _invalid(quota, f"a name is dimension:pattern, with one of the dimensions {known}")
    if len(quota.name) > _MAX_NAME_CHARS or not quota.name.isprintable() or _ANY in pattern[:-1]:
        raise _invalid(quota, f"a name has at most {_MAX_NAME_CHARS} printable characters, and * only at its end")
    values = {name: getattr(quota, name) for name in _ALL_LIMITS}
    for name, value in values.items():
        if not 0 <= value <= _MAX_VALUE:
            raise _invalid(quota, f"{name} is from 0 (no limit) to {_MAX_VALUE}")
        if value and name not in _LIMITS[Dimension(dimension)]:
            allowed = ", ".join(sorted(_LIMITS[Dimension(dimension)]))
            raise _invalid(quota, f"{name} has no meaning for a {dimension}; allowed are {allowed}")
    if not any(values.values()):
        raise _invalid(quota, "it sets no limit; delete the quota to remove its limits")
    if not 1 <= quota.burst_millis <= _MAX_BURST_MS:
        raise _invalid(quota, f"burst_millis is from 1 to {_MAX_BURST_MS}")
    if quota.drops_oldest and not quota.storage_bytes:
        raise _invalid(quota, "drops_oldest needs storage_bytes")


def _invalid(quota: Quota, text: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, f"quota {quota.name[:_MAX_NAME_CHARS]!r}: {text}",
                        Reason.INVALID_PARAMETER)  # fmt: skip


class Patterns:
    """Quotas of one dimension.  The most specific one holds: the name itself, else the longest matching prefix."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        patterns = {quota.name.partition(":")[2]: quota for quota in quotas}
        self._literal = {text: quota for text, quota in patterns.items() if not text.endswith(_ANY)}
        self._prefixes = {text[:-1]: quota for text, quota in patterns.items() if text.endswith(_ANY)}
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixes)

    def find(self, name: str) -> Quota | None:
        """Return the quota that holds for a name; None if there is none."""
        found = self._literal.get(name)
        if found is None:
            longest_first = (self._prefixes.get(name[:length]) for length in self._lengths)
            found = next((quota for quota in longest_first if quota is not None), None)
        return found


def by_dimension(table: Mapping[str, Quota]) -> dict[Dimension, Patterns]:
    """Return the quotas of each dimension."""
    return {
        dimension: Patterns(quota for name, quota in table.items() if name.startswith(f"{dimension.value}:"))
        for dimension in Dimension
    }


def share(own: float, others: Iterable[float], unknown: int) -> float:
    """Return the share (0 to 1) of a cluster-wide limit for a broker, by what was asked for at it and at the others.

    A fifth is divided evenly, so that each broker admits the first requests of new clients.  The rest is divided by
    what was asked for.  Each of the `unknown` brokers has an equal part of all, as it has by its own reckoning.
    """
    asked = [own, *others]
    count, total = len(asked), sum(asked)
    part = _EVEN / count + (1 - _EVEN) * (own / total if total > 0 else 1 / count)
    return part * count / (count + unknown)
