"""Decision about requests by users and policies: first identity, then permission.

Source of order, codes and texts: RocketMQ 5.3.3, `DefaultAuthenticationHandler`, `UserAuthorizationHandler`,
`AclAuthorizationHandler` and the strategies.  Stricter here: a name counts only with its signature, also if a white
list admits the request without one, and also with authorizationEnabled alone.  Whatever the strategy, each request
proves its identity again; an earlier proof on the connection does not count.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from acl.access_request import ANY_NAMESPACE, AccessRequest, FailedAttempt, NameFilter, Needed, Verdict
from acl.audit_log import without_tokens
from acl.auth.addresses import address_text
from acl.auth.errors import AuthRefused
from acl.auth.evaluation import AclIndex
from acl.auth.model import (
    Action,
    Decision,
    Resource,
    ResourceType,
    Subject,
    SubjectType,
    User,
    UserStatus,
    UserType,
)
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.grants import Grants, grant
from acl.remote_addresses import Parts
from acl.tokens.token_text import is_token
from acl.tokens.tokens import Tokens
from acl.tokens.verified_token import VerifiedToken
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE, signature
from sprocket.remoting.message.namespaces import namespace_of

_NO_TOKENS: Final = "tokens are not accepted here: set tokenPublicKey, tokenSecretKey or openIDAllowedTokenIssuers"
_MAX_INDEXES: Final = 8192
# Checked for an unknown user, so that the response takes as long.
_NO_KEY: Final = "no user has this password"
_NOBODY: Final = "Authorization failed. Please verify your access rights and try again."
# Returns what a request needs; see acl.auth.requests.
Required = Callable[[AccessRequest], Sequence[Needed]]


class _NotProved(FailedAttempt):
    """The user does not exist, or has another key."""

    def __init__(self, why: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, why)


def _nothing(_: str) -> bool:
    return False


class _InNamespaces:
    """Filter of names: those in namespaces on which a user has one of `actions`."""

    def __init__(self, acl: AclIndex, actions: Sequence[Action], source: Parts | None) -> None:
        self._acl, self._actions, self._source = acl, actions, source
        self._known: dict[str, bool] = {"": False}  # by namespace

    def shows(self, name: str) -> bool:
        """Return whether the list has `name`."""
        namespace = namespace_of(name)
        known = self._known.get(namespace)
        if known is None:
            asked = Resource(ResourceType.NAMESPACE, namespace)
            known = self._known[namespace] = self._acl.decide(asked, self._actions, self._source) is Decision.ALLOW
        return known


class Caller(msgspec.Struct, frozen=True):
    """Who has proved itself: a user, and the token that names it, if a token does."""

    user: User
    token: VerifiedToken | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles whose policies count beside the user's own."""
        return () if self.token is None else self.token.roles

    @property
    def key(self) -> str:
        """Name of the policies that count; no user and no role has a zero character in its name."""
        return "\0".join((self.user.username, *self.roles)) if self.roles else self.user.username


class AuthPolicy:
    """Decisions of `settings` with the users and acls of `tables`; `required` returns what a request needs.

    `tokens` are None if no token is accepted.

    The constructor raises ConfigError for invalid settings.
    """

    def __init__(
        self, settings: AuthSettings, tables: AuthTables, required: Required, tokens: Tokens | None = None
    ) -> None:
        self._tables = tables
        self._tokens = tokens
        self._tokens_make_super = settings.token_super_user_enabled
        self.revision = tables.revision
        self._required = required
        self._authorizes = settings.authorization_enabled
        self._unsigned_codes = settings.codes_without_signature()
        self._free_codes = settings.codes_without_permission()
        self._certificate_as_user = settings.certificate_as_user
        # Indexes of acls by user, and grants, kept until any table changes.
        self._acls: dict[str, AclIndex] = {}
        self._grants = Grants()
        self._changes = -1

    def check(self, asked: AccessRequest) -> Verdict | None:
        """Return who signed the request.  Raises AuthRefused, or FailedAttempt for a wrong signature."""
        code = asked.code
        caller = self._proved(asked) if code not in self._unsigned_codes else self._proved_if_signed(asked)
        if self._authorizes and code not in self._free_codes:
            self._authorize(caller, asked)
        return None if caller is None else Verdict(caller.user.username, caller.token)

    def check_right(self, who: Verdict, asked: AccessRequest) -> None:
        """Raise AuthRefused unless `who`, proved before, still may do what `asked` needs."""
        caller = self._still(who)
        if self._authorizes:
            self._authorize(caller, asked)

    def _still(self, who: Verdict) -> Caller:
        """Return `who` as it is now.  Raises AuthRefused if its user or its token has ended."""
        if who.token is not None and self._tokens is not None:
            self._tokens.demand(who.token)
            return self._bearer(who.token)
        user = self._tables.user(who.account)
        if user is None or user.user_status is UserStatus.DISABLE:
            raise AuthRefused(f"User:{who.account} is not found, or disabled.")
        return Caller(user)

    def verify(self, token: str) -> Verdict:
        """Return who presents a token.  Raises AuthRefused, or FailedAttempt if nobody trusted has signed it."""
        caller = self._presented(token)
        return Verdict(caller.user.username, caller.token)

    def shown(self, access_key: str) -> tuple[str, str]:
        """Return what a log may show of an access key: the user, and the id of its token."""
        return without_tokens(access_key) if self._tokens is None else self._tokens.shown(access_key)

    def visible(self, who: Verdict, asked: AccessRequest) -> NameFilter | None:
        """Return which names of topics, groups and users an admitted list shows `who`; None: all."""
        try:
            caller = self._still(who)
        except AuthRefused:
            return _nothing
        if not self._authorizes or caller.user.is_super:
            return None
        for needed in self._required(asked):
            is_partial = needed.instead == ANY_NAMESPACE
            acl = self._acl(caller)
            if is_partial and acl.decide(needed.resource, needed.actions, asked.peer) is not Decision.ALLOW:
                return _InNamespaces(acl, needed.actions, asked.peer).shows
        return None

    def secret_key(self, account: str) -> str | None:
        """Return the password of an enabled user; None without one."""
        user = self._tables.user(account)
        return None if user is None or user.user_status is UserStatus.DISABLE else user.password

    def is_signed_by_super(self, code: int, name: str | None) -> bool:
        """Return whether an admitted request with this code and user name comes from a super user."""
        if name is None or code in self._unsigned_codes:
            return False
        try:
            user = self.verify(name).account if is_token(name) else name
        except RequestError:
            return False
        known = self._tables.user(user)
        return known is not None and known.is_super

    # Identity

    def _proved_if_signed(self, asked: AccessRequest) -> Caller | None:
        if not asked.signature and not self._certified(asked) and not is_token(asked.access_key):
            return None
        try:
            return self._proved(asked)
        except (AuthRefused, FailedAttempt):
            return None  # the white list admits it, as nobody

    def _certified(self, asked: AccessRequest) -> bool:
        """Return whether the connection's certificate names the user."""
        return self._certificate_as_user and asked.certificate_name is not None and not asked.access_key

    def _proved(self, asked: AccessRequest) -> Caller:
        fields = asked.fields
        name = fields.get(ACCESS_KEY)
        if not name:
            if self._certified(asked) and asked.certificate_name is not None:
                return Caller(self._enabled(asked.certificate_name, self._tables.user(asked.certificate_name)))
            raise AuthRefused("username cannot be null.")
        if is_token(name):
            return self._presented(name)
        user = self._tables.user(name)
        expected = signature(_NO_KEY if user is None else user.password, fields, asked.body, asked.version)
        given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
        is_signed = hmac.compare_digest(expected.encode(), given)
        user = self._enabled(name, user)
        if not is_signed:
            raise _NotProved("check signature failed.")
        return Caller(user)

    def _presented(self, token: str) -> Caller:
        if self._tokens is None:
            raise _NotProved(_NO_TOKENS)
        return self._bearer(self._tokens.verify(token))

    def _bearer(self, token: VerifiedToken) -> Caller:
        """Return who presents a token: a user that exists, or a name with a role that has policies."""
        user = self._tables.user(token.user)
        if user is None:
            if not any(self._tables.has_acl(Subject(role, SubjectType.ROLE)) for role in token.roles):
                raise AuthRefused(f"User:{token.user} is not found, and no role of its token has an acl.")
            return Caller(User(token.user, ""), token)
        if user.user_status is UserStatus.DISABLE:
            raise AuthRefused(f"User:{token.user} is disabled.")
        if user.is_super and not self._tokens_make_super:
            raise AuthRefused(f"User:{token.user} is a super user, and needs its password (tokenSuperUserEnabled).")
        return Caller(user, token)

    def _enabled(self, name: str, user: User | None) -> User:
        if user is None:
            raise _NotProved(f"User:{name} is not found.")
        if user.user_status is UserStatus.DISABLE:
            raise AuthRefused(f"User:{name} is disabled.")
        return user

    # Permission

    def _authorize(self, caller: Caller | None, asked: AccessRequest) -> None:
        if self._changes != self.revision.number:
            self._changes = self.revision.number
            self._acls.clear()
            self._grants.forget()
        if caller is None:
            if self._required(asked):
                raise AuthRefused(_NOBODY)
            return
        if caller.user.user_type is UserType.SUPER:
            return
        wanted = grant(caller.key, asked)
        if wanted in self._grants:
            return
        self._demand(caller, asked)
        self._grants.remember(wanted)

    def _demand(self, caller: Caller, asked: AccessRequest) -> None:
        if asked.access_key != caller.user.username:
            asked = msgspec.structs.replace(asked, proved_user=caller.user.username)
        for needed in self._required(asked):
            decision = self._acl(caller).decide(needed.resource, needed.actions, asked.peer)
            if decision is not Decision.ALLOW and not self._is_enough(caller, needed, asked.peer):
                why = "no matched policies." if decision is None else "the decision is deny."
                raise AuthRefused(
                    f"{caller.user.subject.key} has no permission to access {needed.name} "
                    f"from {address_text(asked.peer)}, {why}"
                )

    def _is_enough(self, caller: Caller, needed: Needed, source: Parts | None) -> bool:
        """Return whether the caller has the other right of `needed`."""
        if needed.instead is None:
            return False
        acl = self._acl(caller)
        if needed.instead == ANY_NAMESPACE:
            return acl.allows_in_a_namespace(needed.actions, source)
        return acl.decide(needed.instead, needed.actions, source) is Decision.ALLOW

    def _acl(self, caller: Caller) -> AclIndex:
        acl = self._acls.get(caller.key)
        if acl is None:
            if len(self._acls) >= _MAX_INDEXES:  # issuers choose the names of users that have only roles
                self._acls.clear()
            acl = self._acls[caller.key] = AclIndex(self._tables.acl_of(caller.user, caller.roles))
        return acl
