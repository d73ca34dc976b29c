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

from acl.auth_model import Acl, Action, Decision, PolicyEntry, PolicyType, Resource, ResourcePattern, ResourceType
from acl.remote_addresses import Parts

_EXACTNESS: Final = {ResourcePattern.LITERAL: 0, ResourcePattern.PREFIXED: 1, ResourcePattern.ANY: 2}


def deciding_entry(acl: Acl, resource: Resource, actions: Sequence[Action], source: Parts | None) -> PolicyEntry | None:
    """The entry that decides about any of `actions` with `resource`, asked for from `source`; None if none matches."""
    for policy_type in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        policy = acl.policy(policy_type)
        if policy is None:
            continue
        matching = [entry for entry in policy.entries if entry.matches(resource, actions, source)]
        if matching:
            return min(matching, key=precedence)
    return None


def precedence(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """The smallest of these decides."""
    resource = entry.resource
    return (
        resource.resource_type is ResourceType.ANY,
        _EXACTNESS[resource.pattern],
        -len(resource.name or ""),
        entry.decision is not Decision.DENY,
    )
