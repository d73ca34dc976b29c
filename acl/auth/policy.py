"""Decision about requests by users and policies: first identity, then permission.

Source of order, codes and texts: RocketMQ 5.3.3, `DefaultAuthenticationHandler`, `UserAuthorizationHandler`,
`AclAuthorizationHandler` and the strategies.  Stricter here: a name counts only with its signature, also if a white
list admits the request without one, and also with authorizationEnabled alone.  Whatever the strategy, each request
proves its identity again; an earlier proof on the connection does not count.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import Final

from acl.access_request import ANY_NAMESPACE, AccessRequest, FailedAttempt, NameFilter, Needed, Verdict
from acl.auth.addresses import address_text
from acl.auth.errors import AuthRefused
from acl.auth.evaluation import AclIndex
from acl.auth.model import Action, Decision, Resource, ResourceType, User, UserStatus, UserType
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.grants import Grants, grant
from acl.remote_addresses import Parts
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE, signature
from sprocket.remoting.message.namespaces import namespace_of

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
            entry = self._acl.deciding_entry(asked, self._actions, self._source)
            known = self._known[namespace] = entry is not None and entry.decision is Decision.ALLOW
        return known


class AuthPolicy:
    """Decisions of `settings` with the users and acls of `tables`; `required` returns what a request needs.

    The constructor raises ConfigError for invalid settings.
    """

    def __init__(self, settings: AuthSettings, tables: AuthTables, required: Required) -> None:
        self._tables = tables
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
        user = self._proved(asked) if code not in self._unsigned_codes else self._proved_if_signed(asked)
        if self._authorizes and code not in self._free_codes:
            self._authorize(user, asked)
        return None if user is None else Verdict(user.username)

    def check_right(self, name: str, asked: AccessRequest) -> None:
        """Raise AuthRefused unless the user, who has signed before, may do what `asked` needs."""
        user = self._tables.user(name)
        if user is None or user.user_status is UserStatus.DISABLE:
            raise AuthRefused(f"User:{name} is not found, or disabled.")
        if self._authorizes:
            self._authorize(user, asked)

    def visible(self, name: str, asked: AccessRequest) -> NameFilter | None:
        """Return which names of topics, groups and users an admitted list shows the user; None: all."""
        user = self._tables.user(name)
        if user is None:
            return _nothing
        if not self._authorizes or user.is_super:
            return None
        for needed in self._required(asked):
            is_partial = needed.instead == ANY_NAMESPACE
            if is_partial and self._decide(user, needed.resource, needed.actions, asked.peer) is not Decision.ALLOW:
                return _InNamespaces(self._acl(user), needed.actions, asked.peer).shows
        return None

    def secret_key(self, account: str) -> str | None:
        """Return the password of an enabled user; None without one."""
        user = self._tables.user(account)
        return None if user is None or user.user_status is UserStatus.DISABLE else user.password

    def is_signed_by_super(self, code: int, name: str | None) -> bool:
        """Return whether an admitted request with this code and user name comes from a super user."""
        user = None if name is None or code in self._unsigned_codes else self._tables.user(name)
        return user is not None and user.is_super

    # Identity

    def _proved_if_signed(self, asked: AccessRequest) -> User | None:
        if not asked.signature and not self._certified(asked):
            return None
        try:
            return self._proved(asked)
        except (AuthRefused, FailedAttempt):
            return None  # the white list admits it, as nobody

    def _certified(self, asked: AccessRequest) -> bool:
        """Return whether the connection's certificate names the user."""
        return self._certificate_as_user and asked.certificate_name is not None and not asked.access_key

    def _proved(self, asked: AccessRequest) -> User:
        fields = asked.fields
        name = fields.get(ACCESS_KEY)
        if not name:
            if self._certified(asked) and asked.certificate_name is not None:
                return self._enabled(asked.certificate_name, self._tables.user(asked.certificate_name))
            raise AuthRefused("username cannot be null.")
        user = self._tables.user(name)
        expected = signature(_NO_KEY if user is None else user.password, fields, asked.body, asked.version)
        given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
        is_signed = hmac.compare_digest(expected.encode(), given)
        user = self._enabled(name, user)
        if not is_signed:
            raise _NotProved("check signature failed.")
        return user

    def _enabled(self, name: str, user: User | None) -> User:
        if user is None:
            raise _NotProved(f"User:{name} is not found.")
        if user.user_status is UserStatus.DISABLE:
            raise AuthRefused(f"User:{name} is disabled.")
        return user

    # Permission

    def _authorize(self, user: User | None, asked: AccessRequest) -> None:
        if self._changes != self.revision.number:
            self._changes = self.revision.number
            self._acls.clear()
            self._grants.forget()
        if user is None:
            if self._required(asked):
                raise AuthRefused(_NOBODY)
            return
        if user.user_type is UserType.SUPER:
            return
        wanted = grant(user.username, asked)
        if wanted in self._grants:
            return
        self._demand(user, asked)
        self._grants.remember(wanted)

    def _demand(self, user: User, asked: AccessRequest) -> None:
        for needed in self._required(asked):
            decision = self._decide(user, needed.resource, needed.actions, asked.peer)
            if decision is not Decision.ALLOW and not self._is_enough(user, needed, asked.peer):
                why = "no matched policies." if decision is None else "the decision is deny."
                raise AuthRefused(
                    f"{user.subject.key} has no permission to access {needed.name} "
                    f"from {address_text(asked.peer)}, {why}"
                )

    def _is_enough(self, user: User, needed: Needed, source: Parts | None) -> bool:
        """Return whether the user has the other right of `needed`."""
        if needed.instead is None:
            return False
        if needed.instead == ANY_NAMESPACE:
            return self._acl(user).allows_in_a_namespace(needed.actions, source)
        return self._decide(user, needed.instead, needed.actions, source) is Decision.ALLOW

    def _decide(
        self, user: User, resource: Resource, actions: Sequence[Action], source: Parts | None
    ) -> Decision | None:
        entry = self._acl(user).deciding_entry(resource, actions, source)
        return None if entry is None else entry.decision

    def _acl(self, user: User) -> AclIndex:
        acl = self._acls.get(user.username)
        if acl is None:
            acl = self._acls[user.username] = AclIndex(self._tables.acl_of_user(user))
        return acl
