"""Users and policies of ACL 2.0: the users, and what each may do on which resource from where.  Pure.

Names and meanings are RocketMQ's.  Values are immutable: a change of an acl returns a new one.
Source: RocketMQ 5.3.3, `auth.authentication.model`, `auth.authorization.model` and their enums; `Action`,
`ResourceType`, `ResourcePattern`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Final, TypeVar

from acl.auth.addresses import SourceAddresses
from acl.remote_addresses import Parts
from sprocket.remoting.message.namespaces import namespace_of
from sprocket.remoting.message.topic_names import RETRY_PREFIX

E = TypeVar("E", bound=Enum)
_ASTERISK: Final = "*"


class UserType(Enum):
    """Type of a user: a super user may do everything, a normal one what policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Status of a user: a disabled one cannot sign."""

    ENABLE = "enable"
    DISABLE = "disable"


class SubjectType(Enum):
    """Kinds of subjects of policies.  Roles, which tokens have, are Sprocket's own."""

    USER = "User"
    ROLE = "Role"


class PolicyType(Enum):
    """Type of a policy: default ones count if no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(Enum):
    """Decision of a matching entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class ResourceType(Enum):
    """Type of a guarded resource; `ANY` is all types."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


_IN_NAMESPACES: Final = frozenset({ResourceType.TOPIC, ResourceType.GROUP})


class ResourcePattern(Enum):
    """How an entry's name is compared."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Action(Enum):
    """Action on a resource.  `ALL` occurs only in policies, `ANY` only in requests."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


def named(kind: type[E], name: str | None) -> E | None:
    """Return the member of `kind` with this name, in any case; None without one."""
    wanted = (name or "").lower()
    return next((one for one in kind if str(one.value).lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a policy."""

    name: str
    subject_type: SubjectType = SubjectType.USER

    @property
    def key(self) -> str:
        """Return the written form: ``User:name``."""
        return f"{self.subject_type.value}:{self.name}"

    @staticmethod
    def parse(key: str | None) -> "Subject | None":
        """Parse ``User:name``; None for an unknown type."""
        type_name, _, name = (key or "").partition(":")
        subject_type = named(SubjectType, type_name)
        return None if subject_type is None else Subject(name, subject_type)


@dataclass(frozen=True, slots=True)
class User:
    """One user.  The password is the key that signs; nothing shows it."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def subject(self) -> Subject:
        """The user as a subject of policies."""
        return Subject(self.username)

    @property
    def is_super(self) -> bool:
        """Whether it may do everything, whatever its policies."""
        return self.user_type is UserType.SUPER


@dataclass(frozen=True, slots=True)
class Resource:
    """Topic, group, cluster or namespace, or a pattern for several; `name` is None for all of a type.

    A namespace covers the topics and groups in it.  RocketMQ knows the type, and never asks for it.
    """

    resource_type: ResourceType
    name: str | None
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @staticmethod
    def cluster(name: str) -> "Resource":
        """Return the cluster of this name."""
        return Resource(ResourceType.CLUSTER, name)

    @staticmethod
    def topic(name: str) -> "Resource":
        """Return the topic of this name."""
        return Resource(ResourceType.TOPIC, name)

    @staticmethod
    def group(name: str) -> "Resource":
        """Return the group of this name, or of a retry topic."""
        return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))

    @staticmethod
    def parse(key: str | None) -> "Resource | None":
        """Parse ``Topic:name``, ``Group:prefix*``, ``Cluster:*`` or ``*``; None if invalid.

        In a name that ends with an asterisk the prefix ends at the first asterisk.
        """
        if key is None or not key.strip():
            return None
        if key == _ASTERISK:
            return Resource(ResourceType.ANY, None, ResourcePattern.ANY)
        type_name, _, name = key.partition(":")
        resource_type = named(ResourceType, type_name)
        if resource_type is None or resource_type is ResourceType.ANY:
            return None
        if name == _ASTERISK:
            return Resource(resource_type, None, ResourcePattern.ANY)
        if name.endswith(_ASTERISK):
            return Resource(resource_type, name.partition(_ASTERISK)[0], ResourcePattern.PREFIXED)
        return Resource(resource_type, name)

    @property
    def key(self) -> str:
        """Return the written form."""
        if self.resource_type is ResourceType.ANY:
            return _ASTERISK
        if self.pattern is ResourcePattern.ANY:
            return f"{self.resource_type.value}:{_ASTERISK}"
        end = _ASTERISK if self.pattern is ResourcePattern.PREFIXED else ""
        return f"{self.resource_type.value}:{self.name}{end}"

    def matches(self, asked: "Resource") -> bool:
        """Return whether this covers `asked`, a single resource."""
        if self.resource_type is ResourceType.ANY:
            return True
        if self.resource_type is ResourceType.NAMESPACE and asked.resource_type in _IN_NAMESPACES:
            return asked.name is not None and self._covers(namespace_of(asked.name))
        if self.resource_type is not asked.resource_type:
            return False
        if self.pattern is ResourcePattern.ANY:
            return True
        if self.pattern is ResourcePattern.LITERAL:
            return self.name == asked.name
        return asked.name is not None and asked.name.startswith(self.name or "")

    def _covers(self, namespace: str) -> bool:
        """Return whether this resource, of namespaces, covers the topics and groups in `namespace`."""
        if not namespace:
            return False
        if self.pattern is ResourcePattern.LITERAL:
            return namespace == self.name
        return self.pattern is ResourcePattern.ANY or namespace.startswith(self.name or "")


@dataclass(frozen=True)
class Environment:
    """Source addresses and subnets of an entry; none means any source."""

    source_ips: tuple[str, ...] = ()

    @cached_property
    def _addresses(self) -> SourceAddresses:
        return SourceAddresses(self.source_ips)

    def matches(self, source: Parts | None) -> bool:
        """Return whether it covers `source`; None is an unknown address."""
        return not self.source_ips or (source is not None and self._addresses.match(source))


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Decision about one resource."""

    resource: Resource
    actions: tuple[Action, ...]
    environment: Environment
    decision: Decision

    def matches(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> bool:
        """Return whether it applies to one of `actions` on `resource` from `source`."""
        return self.resource.matches(resource) and self.means(actions, source)

    def means(self, actions: Sequence[Action], source: Parts | None) -> bool:
        """Return whether it applies to one of `actions` from `source`, on its own resource."""
        own = self.actions
        if not any(one in own for one in actions) and Action.ALL not in own and (Action.ANY not in actions or not own):
            return False
        return self.environment.matches(source)


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries of one type, one for each resource."""

    policy_type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def updated(self, entries: Iterable[PolicyEntry]) -> "Policy":
        """Return a copy in which `entries` replace those for the same resources."""
        by_resource = {entry.resource: entry for entry in self.entries}
        by_resource.update((entry.resource, entry) for entry in entries)
        return replace(self, entries=tuple(by_resource.values()))


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one subject: at most one of each type."""

    subject: Subject
    policies: tuple[Policy, ...]

    def policy(self, policy_type: PolicyType) -> Policy | None:
        """Return the policy of a type; None without one."""
        return next((one for one in self.policies if one.policy_type is policy_type), None)

    def updated(self, policies: Iterable[Policy]) -> "Acl":
        """Return a copy in which entries of `policies` replace those for the same resources."""
        by_type = {one.policy_type: one for one in self.policies}
        for one in policies:
            old = by_type.get(one.policy_type, Policy(one.policy_type, ()))
            by_type[one.policy_type] = old.updated(one.entries)
        return replace(self, policies=tuple(by_type.values()))

    def joined(self, others: Sequence["Acl"]) -> "Acl":
        """Return a copy with all entries of `others`: about one resource there may be several."""
        policies = [policy for one in (self, *others) for policy in one.policies]
        kinds = [
            Policy(kind, tuple(entry for one in policies if one.policy_type is kind for entry in one.entries))
            for kind in PolicyType
        ]
        return replace(self, policies=tuple(policy for policy in kinds if policy.entries))

    def without(self, policy_type: PolicyType, resource: Resource) -> "Acl":
        """Return a copy without the entry for `resource` in the policy of a type; an empty policy is removed."""
        left = []
        for one in self.policies:
            if one.policy_type is policy_type:
                one = replace(one, entries=tuple(entry for entry in one.entries if entry.resource != resource))
            if one.entries:
                left.append(one)
        return replace(self, policies=tuple(left))
