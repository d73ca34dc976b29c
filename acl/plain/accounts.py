"""Accounts of `plain_acl.yml` and of the files in the folder `acl`.

Source of format and rules: RocketMQ 5.3.2, `PlainAccessData`, `PlainAccessConfig`, `PlainPermissionManager.load`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from acl.plain.permission import Permission, default_permission, resource_permissions
from acl.remote_addresses import RemoteAddresses
from sprocket.common.errors import ConfigError
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.message.topic_names import retry_topic

# A key has more characters than this.  Source: `AclConstants`.
_LONGER_THAN: Final = 6
_YES: Final = frozenset({"true", "yes", "on", "y"})
_MAX_BYTES: Final = 16 << 20
T = TypeVar("T")


class WrittenAccount(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Account as written.  Every scalar is text, because no key is a number."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return (self.admin or "").lower() in _YES


class WrittenFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """File as written."""

    global_white_remote_addresses: list[str] | None = None
    accounts: list[WrittenAccount] | None = None
    data_version: list[dict[str, str]] | None = None


@dataclass(frozen=True)
class Account:
    """One account.  `permissions` has topics by name and groups by their retry topics."""

    access_key: str
    secret_key: str = field(repr=False)
    white: RemoteAddresses
    is_admin: bool
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]


@dataclass(frozen=True)
class AccountFile:
    """Content of one file."""

    white: RemoteAddresses
    accounts: tuple[Account, ...]


def parse(name: str, content: bytes) -> AccountFile:
    """Parse the file `name`.  Raises ConfigError naming the file and the fault."""
    file = read_written(name, content)
    try:
        white = RemoteAddresses(file.global_white_remote_addresses or [])
        return AccountFile(white, tuple(_account(entry) for entry in file.accounts or []))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def read_written(name: str, content: bytes) -> WrittenFile:
    """Read the file `name` as written.  Raises ConfigError naming the file and the fault."""
    return _converted(name, content, WrittenFile)


def parse_credentials(name: str, content: bytes) -> Credentials:
    """Return the one account of a tools file.  Raises ConfigError naming the file and the fault."""
    try:
        return _credentials(_converted(name, content, WrittenAccount))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _converted(name: str, content: bytes, kind: type[T]) -> T:
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{name}: {len(content)} bytes, at most {_MAX_BYTES}")
    from acl.plain import yaml_text

    try:
        return msgspec.convert(_without_blanks(yaml_text.load(name, content)), kind)
    except RecursionError:
        raise ConfigError(f"{name}: no YAML: RecursionError") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from None


def _without_blanks(value: object) -> object:
    """Leave out keys without a value, like SnakeYAML's null; an empty document becomes one without keys."""
    if isinstance(value, dict):
        return {key: _without_blanks(one) for key, one in value.items() if one != ""}
    if isinstance(value, list):
        return [_without_blanks(one) for one in value]
    return {} if value is None or value == "" else value


def _credentials(entry: WrittenAccount) -> Credentials:
    # Of any length: it may be a user of ACL 2.0.
    for key, value in (("accessKey", entry.access_key), ("secretKey", entry.secret_key)):
        if value is None or not value.strip():
            raise ConfigError(f"{key} is not set")
    return Credentials(entry.access_key or "", entry.secret_key or "")


def _account(entry: WrittenAccount) -> Account:
    access_key, secret_key = entry.access_key, entry.secret_key
    if access_key is None or len(access_key) <= _LONGER_THAN:
        raise ConfigError(f"accessKey {access_key!r}: it must be longer than {_LONGER_THAN} characters")
    if secret_key is None or len(secret_key) <= _LONGER_THAN:
        raise ConfigError(f"account {access_key}: its secretKey must be longer than {_LONGER_THAN} characters")
    try:
        permissions = resource_permissions(entry.topic_perms or [])
        for group, permission in resource_permissions(entry.group_perms or []).items():
            permissions[retry_topic(group)] = permission
        white = RemoteAddresses([entry.white_remote_address or ""])
    except ConfigError as error:
        raise ConfigError(f"account {access_key}: {error}") from None
    return Account(
        access_key, secret_key, white, entry.is_admin,
        default_permission(entry.default_topic_perm or ""), default_permission(entry.default_group_perm or ""),
        permissions,
    )  # fmt: skip
