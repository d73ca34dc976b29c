"""Conversion of users and acls between their text form (mqadmin, wire, files) and the model.

Source: RocketMQ 5.3.3, `UserConverter`, `AclConverter`, the checks of `AuthorizationMetadataManagerImpl`.  Stricter
here: an unknown type, status, action, policy type or resource is refused.  RocketMQ leaves it out, and so may do
something other than what was written.
"""

from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from acl.auth.addresses import is_address_or_subnet
from acl.auth.errors import AuthRefused
from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    Subject,
    User,
    UserStatus,
    UserType,
    named,
)
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

E = TypeVar("E", bound=Enum)


def user_type_of(info: UserInfo) -> UserType | None:
    """Return the type in `info`; None if none is given.  Raises AuthRefused."""
    return _member(UserType, info.user_type, "userType")


def user_status_of(info: UserInfo) -> UserStatus | None:
    """Return the status in `info`; None if none is given.  Raises AuthRefused."""
    return _member(UserStatus, info.user_status, "userStatus")


def user_info(user: User, *, with_password: bool) -> UserInfo:
    """Return the text form of a user."""
    password = user.password if with_password else None
    return UserInfo(user.username, password, user.user_type.value, user.user_status.value)


def acl_of(info: AclInfo, named_in_header: str | None = None) -> Acl:
    """Return the acl in `info`; its subject defaults to the one in the header.  Raises AuthRefused."""
    subject = Subject.parse(info.subject) or Subject.parse(named_in_header)
    if subject is None:
        raise AuthRefused("The subject is null.")
    policies = tuple(_policy(one) for one in info.policies or ())
    if not policies:
        raise AuthRefused("The policies is empty.")
    return Acl(subject, ()).updated(policies)


def acl_info(acl: Acl) -> AclInfo:
    """Return the text form of an acl."""
    policies = [
        PolicyInfo(policy.policy_type.value, [_entry_info(entry) for entry in policy.entries])
        for policy in acl.policies
    ]  # fmt: skip
    return AclInfo(acl.subject.key, policies or None)


def policy_type_of(name: str | None) -> PolicyType:
    """Return the policy type; Custom if none is given.  Raises AuthRefused."""
    return _member(PolicyType, name, "policyType") or PolicyType.CUSTOM


def resource_of(key: str | None) -> Resource:
    """Return the resource.  Raises AuthRefused."""
    resource = Resource.parse(key)
    if resource is None:
        raise AuthRefused("The resource is null.")
    return resource


def _member(kind: type[E], name: str | None, what: str) -> E | None:
    if name is None or not name.strip():
        return None
    found = named(kind, name.strip())
    if found is None:
        known = ", ".join(str(one.value) for one in kind)
        raise AuthRefused(f"The {what} {name!r} is not one of {known}.")
    return found


def _policy(info: PolicyInfo) -> Policy:
    if not info.entries:
        raise AuthRefused("The policy entries is empty.")
    return Policy(policy_type_of(info.policy_type), tuple(_entry(entry) for entry in info.entries))


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = resource_of(info.resource)
    actions = _actions(info.actions or ())
    for source_ip in info.source_ips or ():
        if not source_ip.strip():
            raise AuthRefused("The source ip is empty.")
        if not is_address_or_subnet(source_ip):
            raise AuthRefused("The source ip is invalid.")
    decision = named(Decision, info.decision)
    if decision is None:
        raise AuthRefused("The decision is null or illegal.")
    return PolicyEntry(resource, actions, Environment(tuple(info.source_ips or ())), decision)


def _actions(names: Sequence[str]) -> tuple[Action, ...]:
    actions = tuple(action for name in names if (action := _member(Action, name, "action")) is not None)
    if not actions:
        raise AuthRefused("The actions is empty.")
    if Action.ANY in actions:
        raise AuthRefused("The actions can not be Any.")
    return actions


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        entry.resource.key,
        [action.value for action in entry.actions],
        list(entry.environment.source_ips) or None,
        entry.decision.value,
    )
