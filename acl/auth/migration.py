"""Migration of ACL 1.0 accounts to users and acls.

An account that is already a user is left unchanged.  White lists have no counterpart and are left out.  So are
permissions for retry topics, because in ACL 2.0 a group's permissions are those of the group.
Source: RocketMQ 5.3.3, `AuthMigrator`, `PlainPermissionManager`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from acl.auth.errors import AuthRefused
from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserType,
)
from acl.auth.tables import AuthTables
from acl.plain.accounts import WrittenAccount

logger = logging.getLogger(__name__)

_EVERYWHERE: Final = Environment()
_ACTIONS: Final = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}


def migrate(accounts: Iterable[WrittenAccount], tables: AuthTables) -> None:
    """Create a user and an acl for every account.  Log and skip one that cannot be converted.

    Raises StoreError if nothing can be saved.
    """
    for account in accounts:
        name = account.access_key or ""
        if tables.user(name) is not None:
            continue
        try:
            tables.create_user(
                User(name, account.secret_key or "", UserType.SUPER if account.is_admin else UserType.NORMAL)
            )
            acl = acl_of_account(account)
            if acl.policies:
                tables.update_acl(acl)
        except AuthRefused as error:
            logger.error("event=account_not_migrated access_key=%r reason=%r", name, error.remark)


def acl_of_account(account: WrittenAccount) -> Acl:
    """Return an account's rights as policies: its permissions as custom ones, its defaults as default ones."""
    custom = [
        *_entries(account.topic_perms or (), Resource.topic),
        *_entries(account.group_perms or (), Resource.group),
    ]
    defaults = [
        _entry(Resource(kind, None, ResourcePattern.ANY), permission)
        for kind, permission in (
            (ResourceType.TOPIC, account.default_topic_perm),
            (ResourceType.GROUP, account.default_group_perm),
        )
        if permission is not None and permission.strip()
    ]
    policies = [
        Policy(policy_type, tuple(entries))
        for policy_type, entries in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, defaults))
        if entries
    ]
    return Acl(User(account.access_key or "", "").subject, ()).updated(policies)


def _entries(permissions: Iterable[str], resource: Callable[[str], Resource]) -> list[PolicyEntry]:
    found = []
    for permission in permissions:
        parts = [part.strip() for part in permission.split("=") if part]
        if len(parts) == 2:
            found.append(_entry(resource(parts[0]), parts[1]))
    return found


def _entry(resource: Resource, permission: str) -> PolicyEntry:
    """Convert an invalid permission to none, as ACL 1.0 reads it; RocketMQ converts it to all."""
    actions = _ACTIONS.get(permission.strip())
    if actions is None:
        return PolicyEntry(resource, (Action.ALL,), _EVERYWHERE, Decision.DENY)
    return PolicyEntry(resource, actions, _EVERYWHERE, Decision.ALLOW)
