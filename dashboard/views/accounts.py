"""Users of all brokers, with their policies.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from sprocket.remoting.bodies.auth import AclInfo, UserInfo


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


def _texts(acl: AclInfo) -> list[str]:
    return [
        f"{entry.decision or ''} {', '.join(entry.actions or [])} on {entry.resource or ''}"
        + (f" from {', '.join(entry.source_ips)}" if entry.source_ips else "")
        for policy in acl.policies or []
        for entry in policy.entries or []
    ]
