"""Users and policies of ACL 2.0: who there is, and what each may do with which resource from where.  Pure.

Names and meanings as in the reference; values do not change once made, what changes an acl makes another one.
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
from sprocket.remoting.message.topic_names import RETRY_PREFIX

E = TypeVar("E", bound=Enum)
_ASTERISK: Final = "*"


class UserType(Enum):
    """A super user may do everything, a normal one what policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Whether a user may sign at all."""

    ENABLE = "enable"
    DISABLE = "disable"


class SubjectType(Enum):
    """What kinds of subjects policies are for."""

    USER = "User"


class PolicyType(Enum):
    """Default policies count where no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(Enum):
    """What a matching entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class ResourceType(Enum):
    """What there is to be guarded; `ANY` is all of it."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class ResourcePattern(Enum):
    """How an entry's name is compared."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Action(Enum):
    """What is done; `ALL` stands only in policies, `ANY` only in what is asked for."""

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
    """The member of `kind` with this name, in whatever case; None if there is none."""
    wanted = (name or "").lower()
    return next((one for one in kind if str(one.value).lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a policy is for."""

    name: str
    subject_type: SubjectType = SubjectType.USER

    @property
    def key(self) -> str:
        """As it is written: ``User:name``."""
        return f"{self.subject_type.value}:{self.name}"

    @staticmethod
    def parse(key: str | None) -> "Subject | None":
        """What ``User:name`` means; None for a type that there is not."""
        type_name, _, name = (key or "").partition(":")
        subject_type = named(SubjectType, type_name)
        return None if subject_type is None else Subject(name, subject_type)


@dataclass(frozen=True, slots=True)
class User:
    """One user; the password is the key that signs, and nothing shows it."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def subject(self) -> Subject:
        """The user as whom policies are for."""
        return Subject(self.username)

    @property
    def is_super(self) -> bool:
        """Whether policies do not count for it."""
        return self.user_type is UserType.SUPER


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, group, cluster or namespace, or a pattern that stands for several; `name` is None for all of a type."""

    resource_type: ResourceType
    name: str | None
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @staticmethod
    def cluster(name: str) -> "Resource":
        """The cluster of this name."""
        return Resource(ResourceType.CLUSTER, name)

    @staticmethod
    def topic(name: str) -> "Resource":
        """The topic of this name."""
        return Resource(ResourceType.TOPIC, name)

    @staticmethod
    def group(name: str) -> "Resource":
        """The group of this name, or of a retry topic."""
        return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))

    @staticmethod
    def parse(key: str | None) -> "Resource | None":
        """What ``Topic:name``, ``Group:prefix*``, ``Cluster:*`` or ``*`` means; None for what means nothing.

        A prefix ends at the first asterisk of a name that ends with one.
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
        """As it is written."""
        if self.resource_type is ResourceType.ANY:
            return _ASTERISK
        if self.pattern is ResourcePattern.ANY:
            return f"{self.resource_type.value}:{_ASTERISK}"
        end = _ASTERISK if self.pattern is ResourcePattern.PREFIXED else ""
        return f"{self.resource_type.value}:{self.name}{end}"

    def matches(self, asked: "Resource") -> bool:
        """Whether `asked`, a single resource, is among what this stands for."""
        if self.resource_type is ResourceType.ANY:
            return True
        if self.resource_type is not asked.resource_type:
            return False
        if self.pattern is ResourcePattern.ANY:
            return True
        if self.pattern is ResourcePattern.LITERAL:
            return self.name == asked.name
        return asked.name is not None and asked.name.startswith(self.name or "")


@dataclass(frozen=True)
class Environment:
    """From where: single addresses and subnets; none of them means from everywhere."""

    source_ips: tuple[str, ...] = ()

    @cached_property
    def _addresses(self) -> SourceAddresses:
        return SourceAddresses(self.source_ips)

    def matches(self, source: Parts | None) -> bool:
        """Whether a request from `source` is from there; None is an address that nobody knows."""
        return not self.source_ips or (source is not None and self._addresses.match(source))


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """What is decided about one resource."""

    resource: Resource
    actions: tuple[Action, ...]
    environment: Environment
    decision: Decision

    def matches(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> bool:
        """Whether it says something about one of these actions with this resource from there."""
        return self.resource.matches(resource) and self.means(actions, source)

    def means(self, actions: Sequence[Action], source: Parts | None) -> bool:
        """Whether it says something about one of these actions from there, with the resource that it is about."""
        own = self.actions
        if not any(one in own for one in actions) and Action.ALL not in own and (Action.ANY not in actions or not own):
            return False
        return self.environment.matches(source)


@dataclass(frozen=True, slots=True)
class Policy:
    """The entries of one type: one for each resource."""

    policy_type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def updated(self, entries: Iterable[PolicyEntry]) -> "Policy":
        """With `entries` in the place of those for the same resources, and beside all others."""
        by_resource = {entry.resource: entry for entry in self.entries}
        by_resource.update((entry.resource, entry) for entry in entries)
        return replace(self, entries=tuple(by_resource.values()))


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one subject: at most one of each type."""

    subject: Subject
    policies: tuple[Policy, ...]

    def policy(self, policy_type: PolicyType) -> Policy | None:
        """The policy of a type; None if there is none."""
        return next((one for one in self.policies if one.policy_type is policy_type), None)

    def updated(self, policies: Iterable[Policy]) -> "Acl":
        """With what `policies` say in the place of what was said of the same resources."""
        by_type = {one.policy_type: one for one in self.policies}
        for one in policies:
            old = by_type.get(one.policy_type, Policy(one.policy_type, ()))
            by_type[one.policy_type] = old.updated(one.entries)
        return replace(self, policies=tuple(by_type.values()))

    def without(self, policy_type: PolicyType, resource: Resource) -> "Acl":
        """Without what the policy of a type says of `resource`; a policy that says nothing more is gone."""
        left = []
        for one in self.policies:
            if one.policy_type is policy_type:
                one = replace(one, entries=tuple(entry for entry in one.entries if entry.resource != resource))
            if one.entries:
                left.append(one)
        return replace(self, policies=tuple(left))
