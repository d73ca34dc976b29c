"""Users of all brokers with their policies, and accounts of ACL 1.0.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from sprocket.remoting.bodies.auth import AclInfo, PlainAccountInfo, PlainAccountsBody, UserInfo


@dataclass(frozen=True)
class AccountRow:
    """One user; `brokers` are those that know it.  Passwords are never shown."""

    name: str
    kind: str
    status: str
    brokers: tuple[str, ...]
    policies: tuple[str, ...]


def account_rows(users: Mapping[str, list[UserInfo]], acls: Mapping[str, list[AclInfo]]) -> list[AccountRow]:
    """Return the users of brokers, by name."""
    found: dict[str, dict[str, UserInfo]] = {}
    for broker, infos in users.items():
        for info in infos:
            found.setdefault(info.username or "", {})[broker] = info
    policies: dict[str, set[str]] = {}
    for infos_of_broker in acls.values():
        for acl in infos_of_broker:
            subject = (acl.subject or "").removeprefix("User:")
            policies.setdefault(subject, set()).update(_texts(acl))
    return [
        AccountRow(
            name,
            " / ".join(sorted({info.user_type or "Normal" for info in by_broker.values()})),
            " / ".join(sorted({info.user_status or "enable" for info in by_broker.values()})),
            tuple(sorted(by_broker)),
            tuple(sorted(policies.get(name, ()))),
        )
        for name, by_broker in sorted(found.items())
    ]


@dataclass(frozen=True)
class PlainRow:
    """One account of ACL 1.0; `brokers` are those that know it."""

    name: str
    is_admin: bool
    addresses: tuple[str, ...]
    brokers: tuple[str, ...]
    permissions: tuple[str, ...]


def plain_rows(accounts: Mapping[str, PlainAccountsBody]) -> list[PlainRow]:
    """Return the accounts of ACL 1.0 of brokers, by name.  What brokers say differently is shown side by side."""
    found: dict[str, dict[str, PlainAccountInfo]] = {}
    for broker, body in accounts.items():
        for account in body.plain_access_configs or []:
            found.setdefault(account.access_key or "", {})[broker] = account
    return [
        PlainRow(
            name,
            any(account.admin for account in by_broker.values()),
            tuple(sorted({one.white_remote_address for one in by_broker.values() if one.white_remote_address})),
            tuple(sorted(by_broker)),
            tuple(dict.fromkeys(text for account in by_broker.values() for text in _permissions(account))),
        )
        for name, by_broker in sorted(found.items())
    ]


def _permissions(account: PlainAccountInfo) -> list[str]:
    return [
        *(f"topic {permission}" for permission in account.topic_perms or []),
        *(f"group {permission}" for permission in account.group_perms or []),
        f"other topics={account.default_topic_perm or 'DENY'}",
        f"other groups={account.default_group_perm or 'DENY'}",
    ]


def _texts(acl: AclInfo) -> list[str]:
    return [
        f"{entry.decision or ''} {', '.join(entry.actions or [])} on {entry.resource or ''}"
        + (f" from {', '.join(entry.source_ips)}" if entry.source_ips else "")
        for policy in acl.policies or []
        for entry in policy.entries or []
    ]
