"""Bodies about users and policies of ACL 2.0, and about accounts of ACL 1.0.

Source: RocketMQ 5.3.3, `UserInfo`, `AclInfo`; 5.3.2, `PlainAccessConfig`, `AclConfig`.  Absent fields are left out, as
fastjson leaves out nulls.
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


class PlainAccountInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """An account of ACL 1.0; permissions are ``topic=PUB|SUB``.  Our broker leaves out the secret key."""

    access_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class PlainAccountsBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """Response to GET_BROKER_CLUSTER_ACL_CONFIG."""

    global_white_addrs: list[str] | None = None
    plain_access_configs: list[PlainAccountInfo] | None = None
