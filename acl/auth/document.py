"""Document of all users and acls: the content of ``auth.json``, and what a master sends to its slaves."""

from dataclasses import replace
from typing import Final

import msgspec

from acl.auth.errors import AuthRefused
from acl.auth.infos import acl_info, acl_of, user_status_of, user_type_of
from acl.auth.model import User, UserStatus, UserType
from acl.auth.secrets import Seal
from acl.auth.tables import AuthContent
from acl.tokens.revocations import Revocation, Revocations
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.auth import AclInfo, UserInfo

_REPLICATED: Final = "users and acls of a master"


class _UserRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """A user with one of the two forms of a password."""

    username: str
    user_type: str = UserType.NORMAL.value
    user_status: str = UserStatus.ENABLE.value
    sealed_password: str | None = None
    password: str | None = None


class _RevokedRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """A revoked token, or all tokens of a user; times are s since the epoch."""

    token_id: str | None = None
    user: str | None = None
    before: float = 0.0
    until: float | None = None


class AuthDocument(msgspec.Struct, rename="camel"):
    """Users by name, acls by subject, and revoked tokens, if there are any."""

    users: list[_UserRecord] = []
    acls: list[AclInfo] = []
    revoked_tokens: list[_RevokedRecord] | msgspec.UnsetType = msgspec.UNSET

    def has_clear_passwords(self) -> bool:
        """Return whether it contains a readable password."""
        return any(user.password is not None for user in self.users)


def document_of(content: AuthContent, seal: Seal | None) -> AuthDocument:
    """Return the document of `content`, with sealed passwords; without a seal they are in clear."""
    users = [
        _UserRecord(
            user.username, user.user_type.value, user.user_status.value,
            None if seal is None else seal.sealed_text(user.password, user.subject.key),
            user.password if seal is None else None,
        )
        for _, user in sorted(content.users.items())
    ]  # fmt: skip
    revoked = [
        _RevokedRecord(one.token_id, one.user, one.before_s, one.until_s)
        for _, one in sorted(content.revocations.entries.items())
    ]  # fmt: skip
    acls = [acl_info(acl) for _, acl in sorted(content.acls.items())]
    return AuthDocument(users, acls, revoked or msgspec.UNSET)


def content_of(document: AuthDocument, seal: Seal | None) -> AuthContent:
    """Return the content of a document.  Raises SealBroken, or ProtocolError for invalid users or acls."""
    try:
        users = [_user(record, seal) for record in document.users]
        acls = [acl_of(info) for info in document.acls]
    except AuthRefused as error:
        raise ProtocolError("auth_document", error.remark) from None
    listed = [] if document.revoked_tokens is msgspec.UNSET else document.revoked_tokens
    revoked = [Revocation(one.token_id, one.user, one.before, one.until) for one in listed]
    return AuthContent(
        {user.username: user for user in users},
        {acl.subject.key: acl for acl in acls},
        Revocations({one.key: one for one in revoked}),
    )


def _user(record: _UserRecord, seal: Seal | None) -> User:
    info = UserInfo(record.username, None, record.user_type, record.user_status)
    user = User(record.username, "", user_type_of(info) or UserType.NORMAL, user_status_of(info) or UserStatus.ENABLE)
    password = record.password
    if password is None:
        if record.sealed_password is None or seal is None:
            raise ProtocolError("auth_document", f"user {record.username!r} has no password that can be read")
        password = seal.opened_text(record.sealed_password, user.subject.key)
    return replace(user, password=password)


def sealed_for_replica(content: AuthContent, seal: Seal) -> bytes:
    """Encrypt `content` for a replica with the same seal: nobody between them can read it."""
    return seal.sealed(msgspec.json.encode(document_of(content, None)), _REPLICATED)


def opened_from_master(sealed: bytes, seal: Seal) -> AuthContent:
    """Decode what `sealed_for_replica` returned.  Raises ProtocolError."""
    try:
        document = msgspec.json.decode(seal.opened(sealed, _REPLICATED), type=AuthDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError("auth_document", str(error)) from None
    return content_of(document, None)
