"""What the policies of a subject decide about one resource.

Custom entries that match come first, default ones count only where none does.  Among those that match the most exact
one decides: one for a type before ``*``, a name before a prefix, a longer prefix before a shorter one, a prefix before
all of a type; deny before allow between equals.
Source: RocketMQ, `AclAuthorizationHandler.comparePolicyEntries` as the changes 9540 and 9785 left it.  That of 5.3.3
is no order: there a shorter prefix comes before a longer one, allow before deny, and of a name and a prefix, or of a
name and all of a type, the entry that was written last may decide.
"""

from collections.abc import Sequence
from typing import Final

from acl.auth.model import Acl, Action, Decision, PolicyEntry, PolicyType, Resource, ResourcePattern, ResourceType
from acl.remote_addresses import Parts

_EXACTNESS: Final = {ResourcePattern.LITERAL: 0, ResourcePattern.PREFIXED: 1, ResourcePattern.ANY: 2}
_NONE: Final[tuple[PolicyEntry, ...]] = ()


def precedence(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """The smallest of these decides."""
    resource = entry.resource
    return (
        resource.resource_type is ResourceType.ANY,
        _EXACTNESS[resource.pattern],
        -len(resource.name or ""),
        entry.decision is not Decision.DENY,
    )


class AclIndex:
    """An acl, arranged so that what decides is found at once: it is asked for every request."""

    def __init__(self, acl: Acl) -> None:
        policies = [acl.policy(PolicyType.CUSTOM), acl.policy(PolicyType.DEFAULT)]
        self._policies = [_PolicyIndex(policy.entries) for policy in policies if policy is not None]

    def deciding_entry(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> PolicyEntry | None:
        """The entry that decides about any of `actions` with `resource`, asked for from `source`; None if none does."""
        for policy in self._policies:
            entry = policy.deciding_entry(resource, actions, source)
            if entry is not None:
                return entry
        return None


class _PolicyIndex:
    """The entries of one policy: those for one name by it, the others in the order in which they decide."""

    def __init__(self, entries: Sequence[PolicyEntry]) -> None:
        self._exact: dict[tuple[str, str | None], tuple[PolicyEntry, ...]] = {}
        self._others: list[PolicyEntry] = []
        for entry in sorted(entries, key=precedence):
            if entry.resource.pattern is ResourcePattern.LITERAL:
                key = entry.resource.resource_type.value, entry.resource.name
                self._exact[key] = (*self._exact.get(key, _NONE), entry)
            else:
                self._others.append(entry)

    def deciding_entry(self, resource: Resource, actions: Sequence[Action], source: Parts | None) -> PolicyEntry | None:
        for entry in self._exact.get((resource.resource_type.value, resource.name), _NONE):
            if entry.means(actions, source):
                return entry
        for entry in self._others:
            if entry.matches(resource, actions, source):
                return entry
        return None
