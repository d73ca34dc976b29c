"""Users and acls of one broker, and their changes.

A change is saved before it takes effect.  Texts of refusals, and the conditions of each change, are RocketMQ's.
Source: RocketMQ 5.3.3, `AuthenticationMetadataManagerImpl`, `AuthorizationMetadataManagerImpl`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from acl.auth.errors import AuthRefused
from acl.auth.model import Acl, PolicyType, Resource, Subject, SubjectType, User, UserStatus, UserType
from acl.tokens.revocations import Revocation, Revocations
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.revision import Revision

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuthContent:
    """All users by name, all acls by the keys of their subjects, and the revoked tokens."""

    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    acls: Mapping[str, Acl] = field(default_factory=lambda: MappingProxyType({}))
    revocations: Revocations = field(default_factory=Revocations)


Save = Callable[[AuthContent], None]


def _save_nothing(_: AuthContent) -> None:
    pass


def _is_no_copy() -> bool:
    return False


class AuthTables:
    """Tables of users and acls.  Changes come one at a time, in any thread: `save` makes each durable and may block.

    If `save` raises, nothing changes.  If `take` was called meanwhile, that content stays.

    If the table `is_copy` of another, a change that is already made is accepted.  Tools make each change on master and
    slave, and the master's change may reach the slave before the tool does.
    """

    def __init__(self, save: Save = _save_nothing, *, is_copy: Callable[[], bool] = _is_no_copy) -> None:
        self._save = save
        self._is_copy = is_copy
        self._content = AuthContent()
        self.revision = Revision()  # rises with every change

    @property
    def content(self) -> AuthContent:
        """All content.  It is immutable; a change replaces it."""
        return self._content

    def take(self, content: AuthContent) -> None:
        """Replace all content.  The caller has saved it, or will."""
        self._content = content
        self.revision.rise()

    # Users

    def user(self, name: str) -> User | None:
        """Return the user of this name; None without one."""
        return self._content.users.get(name)

    def list_users(self, part: str | None = None) -> list[User]:
        """Return the users whose names contain `part`, sorted by name."""
        wanted = _wanted(part)
        return [user for name, user in sorted(self._content.users.items()) if wanted in name]

    def create_user(self, user: User) -> None:
        """Add a user.  Raises AuthRefused."""
        if not user.username.strip():
            raise AuthRefused("username can not be blank")
        if not user.password.strip():
            raise AuthRefused("password can not be blank")
        old = self.user(user.username)
        if old is not None:
            if self._is_copy() and old == user:
                return
            raise AuthRefused("The user is existed")
        self._put_user(user)
        peer_lines.info(logger, "", "event=user_created name=%r type=%s", user.username, user.user_type.value)

    def update_user(
        self, name: str, password: str | None, user_type: UserType | None, user_status: UserStatus | None
    ) -> None:
        """Change the given fields of a user.  Raises AuthRefused."""
        if not name.strip():
            raise AuthRefused("username can not be blank")
        old = self.user(name)
        if old is None:
            raise AuthRefused("The user is not exist")
        new = replace(
            old,
            password=password if password is not None and password.strip() else old.password,
            user_type=user_type or old.user_type,
            user_status=user_status or old.user_status,
        )
        self._put_user(new)
        peer_lines.info(
            logger, "", "event=user_updated name=%r type=%s status=%s password_changed=%s",
            name, new.user_type.value, new.user_status.value, new.password != old.password,
        )  # fmt: skip

    def delete_user(self, name: str) -> None:
        """Remove a user and its acl, if it exists.  Raises AuthRefused."""
        if not name.strip():
            raise AuthRefused("username can not be blank")
        users, acls = dict(self._content.users), dict(self._content.acls)
        is_known = users.pop(name, None) is not None
        if acls.pop(Subject(name).key, None) is None and not is_known:
            return
        self._change(replace(self._content, users=users, acls=acls))
        peer_lines.info(logger, "", "event=user_deleted name=%r", name)

    # Acls

    def acl(self, subject: Subject) -> Acl | None:
        """Return the acl of a subject; None without one.  Raises AuthRefused for an unknown user."""
        self._demand(subject, "The subject is not exist.")
        return self._content.acls.get(subject.key)

    def acl_of(self, user: User, roles: Iterable[str] = ()) -> Acl:
        """Return all policies that count for a user with `roles`, as one acl; empty without any."""
        subjects = [user.subject, *(Subject(role, SubjectType.ROLE) for role in roles)]
        found = [acl for subject in subjects if (acl := self._content.acls.get(subject.key)) is not None]
        return Acl(user.subject, ()).joined(found)

    def has_acl(self, subject: Subject) -> bool:
        """Return whether a subject has an acl."""
        return subject.key in self._content.acls

    # Tokens

    @property
    def revocations(self) -> Revocations:
        """The revoked tokens."""
        return self._content.revocations

    def revoke(self, one: Revocation, now_s: float) -> None:
        """Revoke tokens.  Raises AuthRefused if too many are revoked."""
        try:
            revocations = self._content.revocations.with_entry(one, now_s)
        except ValueError as error:
            raise AuthRefused(str(error)) from None
        self._change(replace(self._content, revocations=revocations))
        peer_lines.info(logger, "", "event=token_revoked key=%r", one.key)

    def list_acls(self, subject_part: str | None = None, resource_part: str | None = None) -> list[Acl]:
        """Return the acls whose subject contains `subject_part`, with entries whose resource contains the other."""
        subject, resource = _wanted(subject_part), _wanted(resource_part)
        found = (_about(acl, resource) for key, acl in sorted(self._content.acls.items()) if subject in key)
        return [acl for acl in found if acl.policies]

    def update_acl(self, acl: Acl) -> None:
        """Replace the entries for the same resources by those of `acl`.  Raises AuthRefused."""
        self._demand(acl.subject, f"The subject of {acl.subject.key} is not exist.")
        old = self._content.acls.get(acl.subject.key)
        self._put_acl(acl if old is None else old.updated(acl.policies))
        peer_lines.info(logger, "", "event=acl_updated subject=%r resources=%r", acl.subject.key, _resources(acl))

    def delete_acl(self, subject: Subject, policy_type: PolicyType, resource: Resource | None) -> None:
        """Remove the entry for `resource`, or all without a resource.  Raises AuthRefused."""
        old = self._content.acls.get(subject.key)
        if self._is_copy() and old is None:
            return
        self._demand(subject, "The subject is not exist.")
        if old is None:
            raise AuthRefused("The acl is not exist.")
        left = None if resource is None else old.without(policy_type, resource)
        if left is None or not left.policies:
            acls = {key: acl for key, acl in self._content.acls.items() if key != subject.key}
            self._change(replace(self._content, acls=acls))
        else:
            self._put_acl(left)
        peer_lines.info(
            logger, "", "event=acl_deleted subject=%r resource=%r", subject.key,
            None if resource is None else resource.key,
        )  # fmt: skip

    def _demand(self, subject: Subject, otherwise: str) -> None:
        if subject.subject_type is SubjectType.USER and self.user(subject.name) is None:
            raise AuthRefused(otherwise)

    def _put_user(self, user: User) -> None:
        self._change(replace(self._content, users={**self._content.users, user.username: user}))

    def _put_acl(self, acl: Acl) -> None:
        self._change(replace(self._content, acls={**self._content.acls, acl.subject.key: acl}))

    def _change(self, content: AuthContent) -> None:
        if content != self._content:
            number = self.revision.number
            self._save(content)
            if self.revision.number == number:
                self.take(content)


def _wanted(part: str | None) -> str:
    """Return a filter; a blank one matches all."""
    return part if part is not None and part.strip() else ""


def _about(acl: Acl, resource_part: str) -> Acl:
    policies = []
    for policy in acl.policies:
        entries = tuple(entry for entry in policy.entries if resource_part in entry.resource.key)
        if entries:
            policies.append(replace(policy, entries=entries))
    return replace(acl, policies=tuple(policies))


def _resources(acl: Acl) -> list[str]:
    return [entry.resource.key for policy in acl.policies for entry in policy.entries]
