"""Changes of ACL 1.0's files for `mqadmin updateAclConfig` and its relatives: text in, text out.

Every change increments the file's dataVersion.  Comments in the file are lost, as in RocketMQ.
Source: RocketMQ 5.3.2, `PlainPermissionManager.updateAccessConfig`, `deleteAccessConfig`,
`updateGlobalWhiteAddrsConfig`, `updateAclConfigFileVersion`.  Different here: a text that could not be read again is
not written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from acl.plain.accounts import WrittenAccount, WrittenFile, parse, read_written
from sprocket.common.errors import ConfigError


@dataclass(frozen=True)
class AccountChange:
    """New values of an account.  None leaves a value unchanged, or out of a new account."""

    access_key: str
    secret_key: str = field(repr=False)
    is_admin: bool = False
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    group_perms: Sequence[str] | None = None


@dataclass(frozen=True)
class FileVersion:
    """How often a file was changed, and when last; zeros if no tool changed it."""

    timestamp_ms: int
    counter: int


def with_account(name: str, content: bytes, change: AccountChange, now_ms: int) -> bytes:
    """Return the file `name` with the account changed or added.  Raises ConfigError if the result is unreadable."""
    file = read_written(name, content)
    accounts = list(file.accounts or [])
    for index, account in enumerate(accounts):
        if account.access_key == change.access_key:
            accounts[index] = _changed(account, change)
            break
    else:
        accounts.append(_changed(WrittenAccount(), change))
    file.accounts = accounts
    return _text(name, file, now_ms)


def without_account(name: str, content: bytes, access_key: str, now_ms: int) -> bytes | None:
    """Return the file `name` without the account; None if it does not have it.  Raises ConfigError."""
    file = read_written(name, content)
    left = [account for account in file.accounts or [] if account.access_key != access_key]
    if len(left) == len(file.accounts or []):
        return None
    file.accounts = left
    return _text(name, file, now_ms)


def with_white_addresses(name: str, content: bytes, addresses: Sequence[str], now_ms: int) -> bytes:
    """Return the file `name` with this global white list.  Raises ConfigError for an invalid address."""
    file = read_written(name, content)
    file.global_white_remote_addresses = list(addresses)
    return _text(name, file, now_ms)


def version_of(name: str, content: bytes) -> FileVersion:
    """Return the dataVersion of the file `name`.  Raises ConfigError."""
    return _version(name, read_written(name, content))


def _version(name: str, file: WrittenFile) -> FileVersion:
    first = file.data_version[0] if file.data_version else {}
    try:
        return FileVersion(int(first.get("timestamp", 0)), int(first.get("counter", 0)))
    except ValueError:
        raise ConfigError(f"{name}: dataVersion: timestamp and counter must be whole numbers") from None


def _changed(account: WrittenAccount, change: AccountChange) -> WrittenAccount:
    account.access_key, account.secret_key = change.access_key, change.secret_key
    account.admin = "true" if change.is_admin else None
    for field_name in ("white_remote_address", "default_topic_perm", "default_group_perm"):
        value = getattr(change, field_name)
        if value is not None:
            setattr(account, field_name, value)
    if change.topic_perms is not None:
        account.topic_perms = list(change.topic_perms)
    if change.group_perms is not None:
        account.group_perms = list(change.group_perms)
    return account


def _text(name: str, file: WrittenFile, now_ms: int) -> bytes:
    before = _version(name, file)
    file.data_version = None
    written: dict[str, Any] = _without_nothing(msgspec.to_builtins(file))
    for account, kept in zip(written.get("accounts", []), file.accounts or [], strict=True):
        account["admin"] = kept.is_admin
    written["dataVersion"] = [{"timestamp": now_ms, "counter": before.counter + 1}]
    from acl.plain import yaml_text

    text = yaml_text.dump(written)
    parse(name, text)  # do not write what could not be read again
    return text


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None and one != ""}
    if isinstance(value, list):
        return [_without_nothing(one) for one in value]
    return value
