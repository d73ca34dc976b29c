"""The members of a group, as `controllerDLegerPeers` names them.

Source: RocketMQ 5.3.3, `ControllerConfig`, and DLedger's `DLedgerConfig.peers`: ``n0-host:port;n1-host:port``.
"""

import re
from collections.abc import Sequence
from typing import Final

from ha.raft.consensus import Member
from sprocket.common.errors import ConfigError

MAX_MEMBERS: Final = 9
_ID: Final = re.compile(r"[A-Za-z0-9_.]{1,64}")
_FORM: Final = "<id>-<host>:<port>;<id>-<host>:<port>"


def parse_members(text: str) -> tuple[Member, ...]:
    """Parse ``n0-host:port;n1-host:port``.  Raises `ConfigError` that names the wrong part."""
    return tuple(_parse_member(part.strip()) for part in text.split(";") if part.strip())


def _parse_member(part: str) -> Member:
    member_id, dash, address = part.partition("-")
    host, colon, port = address.rpartition(":")
    if not dash or not colon or not host.strip("[]"):
        raise ConfigError(f"{part!r} is not a member of a group: write {_FORM}")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{part!r} has no port from 1 to 65535: write {_FORM}")
    return Member(member_id, host.strip("[]"), int(port))


def check_members(members: Sequence[Member], own_id: str) -> Member:
    """Return this process's own member.  Raises `ConfigError` for members that cannot form a group with it."""
    if not members:
        raise ConfigError(f"the group has no members: write {_FORM}")
    if len(members) > MAX_MEMBERS:
        raise ConfigError(f"the group has {len(members)} members: the maximum is {MAX_MEMBERS}, 3 or 5 are usual")
    for member in members:
        if not _ID.fullmatch(member.id):
            raise ConfigError(f"the member id {member.id!r} is refused: use 1 to 64 of A-Z a-z 0-9 _ .")
    ids = [member.id for member in members]
    if repeated := {one for one in ids if ids.count(one) > 1}:
        raise ConfigError(f"more than one member has the id {min(repeated)}: give each member an id of its own")
    addresses = [(member.host, member.port) for member in members]
    if repeated_address := {one for one in addresses if addresses.count(one) > 1}:
        host, port = min(repeated_address)
        raise ConfigError(f"more than one member has the address {host}:{port}: give each member its own")
    for member in members:
        if member.id == own_id:
            return member
    raise ConfigError(
        f"this member's own id {own_id!r} is not among the members {', '.join(ids)}: add it, or change it"
    )
