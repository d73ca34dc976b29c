"""The deciding entry, checked against a second formulation that compares entries in pairs."""

from hypothesis import given
from hypothesis import strategies as st

from acl.auth.evaluation import AclIndex
from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    Subject,
)
from acl.remote_addresses import Parts

_ACTIONS = [Action.ALL, Action.PUB, Action.SUB, Action.CREATE, Action.GET]
_HERE: Parts = (192, 168, 0, 1)


def entry(key: str, decision: Decision, *actions: Action, source: str | None = None) -> PolicyEntry:
    resource = Resource.parse(key)
    assert resource is not None
    return PolicyEntry(resource, actions or (Action.ALL,), Environment((source,) if source else ()), decision)


def custom(*entries: PolicyEntry) -> Acl:
    return Acl(Subject("u"), (Policy(PolicyType.CUSTOM, entries),))


def decided(acl: Acl, asked: Resource, action: Action = Action.PUB, source: Parts | None = _HERE) -> Decision | None:
    found = AclIndex(acl).deciding_entry(asked, [action], source)
    return None if found is None else found.decision


# Cases of RocketMQ's own tests: AuthorizationEvaluatorTest


def test_what_does_not_match_says_nothing() -> None:
    acl = custom(entry("Topic:test*", Decision.ALLOW, Action.PUB, source="192.168.0.0/24"))
    assert decided(acl, Resource.topic("test")) is Decision.ALLOW
    assert decided(acl, Resource.topic("abc")) is None
    assert decided(acl, Resource.topic("test"), Action.SUB) is None
    assert decided(acl, Resource.topic("test"), source=(10, 10, 0, 1)) is None
    assert decided(acl, Resource.topic("test"), source=None) is None


def test_the_most_exact_entry_decides_in_whatever_order_they_were_written() -> None:
    entries = [
        entry("*", Decision.ALLOW, Action.PUB, Action.SUB),
        entry("Topic:*", Decision.DENY, Action.PUB, Action.SUB),
        entry("Topic:test*", Decision.ALLOW, Action.PUB, Action.SUB),
        entry("Topic:test-1", Decision.DENY, Action.PUB, Action.SUB),
    ]
    for acl in (custom(*entries), custom(*reversed(entries))):
        assert decided(acl, Resource.topic("test-1")) is Decision.DENY
        assert decided(acl, Resource.topic("test-2")) is Decision.ALLOW
        assert decided(acl, Resource.topic("abc")) is Decision.DENY
        assert decided(acl, Resource.group("test-2"), Action.SUB) is Decision.ALLOW


def test_defaults_count_where_no_custom_entry_matches() -> None:
    own = Policy(PolicyType.CUSTOM, (entry("Topic:test*", Decision.DENY, Action.PUB),))
    default = Policy(PolicyType.DEFAULT, (entry("Topic:*", Decision.ALLOW, Action.PUB),))
    acl = Acl(Subject("u"), (default, own))
    assert decided(acl, Resource.topic("test")) is Decision.DENY
    assert decided(acl, Resource.topic("abc")) is Decision.ALLOW


def test_the_longer_prefix_decides() -> None:
    for entries in (["a*", "abc*"], ["abc*", "a*"]):
        decisions = {"a*": Decision.ALLOW, "abc*": Decision.DENY}
        acl = custom(*(entry(f"Topic:{key}", decisions[key]) for key in entries))
        assert decided(acl, Resource.topic("abcd")) is Decision.DENY
        assert decided(acl, Resource.topic("abd")) is Decision.ALLOW


# A second formulation

_RESOURCES = st.sampled_from([
    "*", "Topic:*", "Group:*", "Topic:a", "Topic:ab", "Topic:a*", "Topic:ab*", "Topic:abc*", "Topic:b*", "Group:a",
    "Group:a*", "Cluster:*",
])  # fmt: skip
_ENTRIES = st.builds(
    lambda key, decision, actions, source: entry(key, decision, *actions, source=source),
    _RESOURCES,
    st.sampled_from(list(Decision)),
    st.lists(st.sampled_from(_ACTIONS), min_size=1, max_size=3),
    st.sampled_from([None, "192.168.0.0/24", "10.0.0.0/8", "192.168.0.1"]),
)
_POLICIES = st.lists(
    st.builds(
        lambda policy_type, entries: Policy(policy_type, tuple(entries)),
        st.sampled_from(list(PolicyType)),
        st.lists(_ENTRIES, max_size=6),
    ),
    max_size=2,
    unique_by=lambda policy: policy.policy_type,
)
_ASKED = st.sampled_from([Resource.topic(n) for n in ("a", "ab", "abc", "x")] + [Resource.group("a")])


def _says_nothing(one: PolicyEntry, asked: Resource, actions: list[Action], source: Parts | None) -> bool:
    resource = one.resource
    if resource.resource_type not in (ResourceType.ANY, asked.resource_type):
        return True
    name = asked.name or ""
    if resource.pattern is ResourcePattern.LITERAL and resource.name != name:
        return True
    if resource.pattern is ResourcePattern.PREFIXED and name[: len(resource.name or "")] != resource.name:
        return True
    if not set(one.actions) & {*actions, Action.ALL}:
        return True
    inside = {
        None: True,
        "192.168.0.0/24": source is not None and source[:3] == (192, 168, 0),
        "10.0.0.0/8": source is not None and source[:1] == (10,),
        "192.168.0.1": source == (192, 168, 0, 1),
    }
    return not inside[next(iter(one.environment.source_ips), None)]


def _goes_before(one: PolicyEntry, other: PolicyEntry) -> bool:
    """Return whether `one` decides if both entries match."""
    mine, theirs = one.resource, other.resource
    if mine.resource_type is not theirs.resource_type:
        return theirs.resource_type is ResourceType.ANY
    if mine.pattern is not theirs.pattern:
        if mine.pattern is ResourcePattern.LITERAL:
            return True
        return mine.pattern is ResourcePattern.PREFIXED and theirs.pattern is ResourcePattern.ANY
    if mine.pattern is ResourcePattern.PREFIXED and mine.name != theirs.name:
        return len(mine.name or "") > len(theirs.name or "")
    return one.decision is Decision.DENY and other.decision is Decision.ALLOW


@given(_POLICIES, _ASKED, st.lists(st.sampled_from(_ACTIONS[1:]), min_size=1, max_size=2), st.sampled_from([
    None, _HERE, (192, 168, 0, 2), (10, 1, 1, 1),
]))  # fmt: skip
def test_which_policy_decides(
    policies: list[Policy], asked: Resource, actions: list[Action], source: Parts | None
) -> None:
    expected: Decision | None = None
    for policy_type in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        speaking = [
            one
            for policy in policies
            if policy.policy_type is policy_type
            for one in policy.entries
            if not _says_nothing(one, asked, actions, source)
        ]
        if speaking:
            (expected,) = {one.decision for one in speaking if not any(_goes_before(other, one) for other in speaking)}
            break
    found = AclIndex(Acl(Subject("u"), tuple(policies))).deciding_entry(asked, actions, source)
    assert (None if found is None else found.decision) is expected
