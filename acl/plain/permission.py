"""Permission of an account on a topic or a group.  Source: RocketMQ 5.3.2, `Permission`."""

from collections.abc import Iterable
from enum import IntFlag
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.remoting.codes import RequestCode


class Permission(IntFlag):
    """Permission flags.  `ANY` is only asked for: an account with PUB or SUB has it."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8

    def allows(self, needed: "Permission") -> bool:
        """Return whether the owner of this permission may do what needs `needed`."""
        # On the numbers: flag operators create objects, and this runs for each message.
        own = self._value_
        return not own & _DENY and bool(own & (_PUB_OR_SUB if needed is Permission.ANY else needed._value_))


_DENY: Final = Permission.DENY.value
_PUB_OR_SUB: Final = (Permission.PUB | Permission.SUB).value
_BY_NAME: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
# Codes only for accounts with ``admin: true``.
ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
)


def default_permission(name: str) -> Permission:
    """Return the permission of a name; DENY for an unknown name, as in RocketMQ."""
    return _BY_NAME.get(name.strip(), Permission.DENY)


def resource_permissions(entries: Iterable[str]) -> dict[str, Permission]:
    """Return permissions by resource, from entries such as ``topicA=PUB|SUB``.  Raises ConfigError if malformed."""
    found = {}
    for entry in entries:
        resource, is_pair, name = (part.strip() for part in entry.partition("="))
        if not resource or not is_pair or "=" in name:
            raise ConfigError(f"permission {entry!r}: write resource=permission, as in topicA=SUB")
        permission = _BY_NAME.get(name)
        if permission is None:
            raise ConfigError(f"permission {entry!r}: allowed are DENY, PUB, SUB and PUB|SUB")
        found[resource] = permission
    return found
