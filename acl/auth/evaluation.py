"""Decision of a subject's policies about one resource.

Matching custom entries come first; default ones count only if no custom one matches.  Among matching entries the most
exact one decides: a type before ``*``, a name before a prefix, a longer prefix before a shorter one, a prefix before
all of a type, and among equals deny before allow.  A namespace counts as the prefix of the names in it.
Source: RocketMQ, `AclAuthorizationHandler.comparePolicyEntries` after the changes 9540 and 9785.  That of 5.3.3 is not
an order: a shorter prefix comes before a longer one, and allow before deny; between a name and a prefix, or a name and
all of a type, the entry written last may decide.
"""

from collections.abc import Sequence
from typing import Final

from acl.auth.model import Acl, Action, Decision, PolicyEntry, PolicyType, Resource, ResourcePattern, ResourceType
from acl.remote_addresses import Parts
from sprocket.remoting.message.namespaces import SEPARATOR

_EXACTNESS: Final = {ResourcePattern.LITERAL: 0, ResourcePattern.PREFIXED: 1, ResourcePattern.ANY: 2}
_NONE: Final[tuple[PolicyEntry, ...]] = ()


def precedence(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """Return the sort key of an entry; the smallest decides."""
    resource = entry.resource
    pattern, chars = resource.pattern, len(resource.name or "")
    if resource.resource_type is ResourceType.NAMESPACE:
        if pattern is not ResourcePattern.PREFIXED:
            chars += len(SEPARATOR)  # after which the names in it differ
        if pattern is ResourcePattern.LITERAL:
            pattern = ResourcePattern.PREFIXED
    is_any = resource.resource_type is ResourceType.ANY
    return is_any, _EXACTNESS[pattern], -chars, entry.decision is not Decision.DENY


class AclIndex:
    """Acl arranged for fast decisions, because every request needs one."""

    def __init__(self, acl: Acl) -> None:
        policies = [acl.policy(PolicyType.CUSTOM), acl.policy(PolicyType.DEFAULT)]
        self._policies = [_PolicyIndex(policy.entries) for policy in policies if policy is not None]

    def decide(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> Decision | None:
        """Return the decision about any of `actions` on `resource` from `source`; None if no entry decides."""
        entry = self.deciding_entry(resource, actions, source)
        return None if entry is None else entry.decision

    def deciding_entry(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> PolicyEntry | None:
        """Return the entry that decides about any of `actions` on `resource` from `source`; None if none does."""
        for policy in self._policies:
            entry = policy.deciding_entry(resource, actions, source)
            if entry is not None:
                return entry
        return None

    def allows_in_a_namespace(self, actions: Sequence[Action], source: Parts | None) -> bool:
        """Return whether some entry of a namespace allows any of `actions` from `source`."""
        return any(policy.allows_in_a_namespace(actions, source) for policy in self._policies)


class _PolicyIndex:
    """Entries of one policy: those for one name by that name, the others in the order in which they decide."""

    def __init__(self, entries: Sequence[PolicyEntry]) -> None:
        self._exact: dict[tuple[str, str | None], tuple[PolicyEntry, ...]] = {}
        self._others: list[PolicyEntry] = []
        for entry in sorted(entries, key=precedence):
            named = entry.resource.pattern is ResourcePattern.LITERAL
            if named and entry.resource.resource_type is not ResourceType.NAMESPACE:
                key = entry.resource.resource_type.value, entry.resource.name
                self._exact[key] = (*self._exact.get(key, _NONE), entry)
            else:
                self._others.append(entry)

    def deciding_entry(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> PolicyEntry | None:
        """Return the entry that decides; None if none does."""
        for entry in self._exact.get((resource.resource_type.value, resource.name), _NONE):
            if entry.means(actions, source):
                return entry
        for entry in self._others:
            if entry.matches(resource, actions, source):
                return entry
        return None

    def allows_in_a_namespace(self, actions: Sequence[Action], source: Parts | None) -> bool:
        """Return whether some entry of a namespace allows any of `actions` from `source`."""
        return any(
            entry.resource.resource_type is ResourceType.NAMESPACE
            and entry.decision is Decision.ALLOW
            and entry.means(actions, source)
            for entry in self._others
        )
