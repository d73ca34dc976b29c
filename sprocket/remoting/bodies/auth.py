"""Bodies about users and policies.

Source: RocketMQ 5.3.3, `UserInfo`, `AclInfo`.  Absent fields are left out, as fastjson leaves out nulls.
"""

import msgspec


class UserInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """A user; `password` is left out for callers that may not see it."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r}, user_status={self.user_status!r})"


class PolicyEntryInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """Decision about one resource, such as ``Topic:orders``, ``Group:bill*``, ``*``."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """Entries of one type, Custom (the default) or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """All policies of one subject, as ``User:name``."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
