"""Names as operators write them, and their meaning."""

import pytest

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
    SubjectType,
    UserStatus,
    UserType,
    named,
)
from acl.remote_addresses import parts_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("*", Resource(ResourceType.ANY, None, ResourcePattern.ANY)),
        ("Topic:*", Resource(ResourceType.TOPIC, None, ResourcePattern.ANY)),
        ("Topic:test-*", Resource(ResourceType.TOPIC, "test-", ResourcePattern.PREFIXED)),
        ("Topic:test-1", Resource(ResourceType.TOPIC, "test-1")),
        ("Group:a*b", Resource(ResourceType.GROUP, "a*b")),
        ("Cluster:DefaultCluster", Resource.cluster("DefaultCluster")),
        ("Namespace:prod*", Resource(ResourceType.NAMESPACE, "prod", ResourcePattern.PREFIXED)),
    ],
)
def test_a_resource_is_read_and_written(key: str, expected: Resource) -> None:
    assert Resource.parse(key) == expected
    assert expected.key == key


def test_a_type_is_read_in_whatever_case_and_written_in_one() -> None:
    resource = Resource.parse("tOPIC:orders")
    assert resource is not None
    assert resource.key == "Topic:orders"


def test_a_prefix_ends_at_its_first_asterisk() -> None:
    assert Resource.parse("Topic:a*b*") == Resource(ResourceType.TOPIC, "a", ResourcePattern.PREFIXED)


@pytest.mark.parametrize("key", [None, "", "  ", "orders", "Tpic:orders", "Any:orders", "Unknown:*", ":orders"])
def test_what_means_nothing_is_no_resource(key: str | None) -> None:
    assert Resource.parse(key) is None


@pytest.mark.parametrize(
    ("key", "asked", "expected"),
    [
        ("*", Resource.cluster("c"), True),
        ("Topic:*", Resource.topic("a"), True),
        ("Topic:*", Resource.group("a"), False),
        ("Topic:te*", Resource.topic("test"), True),
        ("Topic:te*", Resource.topic("te"), True),
        ("Topic:te*", Resource.topic("tabc"), False),
        ("Topic:te*", Resource(ResourceType.TOPIC, None), False),
        ("Topic:te", Resource.topic("test"), False),
        ("Topic:te", Resource.topic("te"), True),
        ("Group:g", Resource.group("%RETRY%g"), True),
    ],
)
def test_what_a_resource_stands_for(key: str, asked: Resource, expected: bool) -> None:
    pattern = Resource.parse(key)
    assert pattern is not None
    assert pattern.matches(asked) is expected


def test_subjects() -> None:
    assert Subject.parse("User:alice") == Subject("alice")
    assert Subject.parse("user:a:b") == Subject("a:b")
    assert Subject("alice").key == "User:alice"
    assert Subject.parse("role:readers") == Subject("readers", SubjectType.ROLE)
    for nothing in (None, "", "alice", "Team:alice"):
        assert Subject.parse(nothing) is None


def test_names_of_types() -> None:
    assert named(UserType, "super") is UserType.SUPER
    assert named(UserStatus, "DISABLE") is UserStatus.DISABLE
    assert named(Action, "pub") is Action.PUB
    assert named(Action, "publish") is named(Action, None) is None


@pytest.mark.parametrize(
    ("source_ips", "source", "expected"),
    [
        ((), "10.1.2.3", True),
        ((), None, True),
        (("192.168.0.0/24",), "192.168.0.1", True),
        (("192.168.0.0/24",), "10.10.0.1", False),
        (("192.168.0.0/24",), None, False),
        (("10.0.0.1", "192.168.0.0/24"), "10.0.0.1", True),
        (("10.0.0.1",), "10.0.0.2", False),
        (("10.0.0.1",), "::ffff:10.0.0.1", True),
        (("2001:db8::/32",), "2001:db8:0:1::5", True),
        (("2001:db8::/32",), "2001:db9::5", False),
        (("0:0:0:0:0:0:0:1",), "::1", True),
        (("0.0.0.0/0",), "2001:db8::1", False),
    ],
)
def test_from_where(source_ips: tuple[str, ...], source: str | None, expected: bool) -> None:
    assert Environment(source_ips).matches(None if source is None else parts_of(source)) is expected


def _entry(key: str, decision: Decision = Decision.ALLOW, *actions: Action) -> PolicyEntry:
    resource = Resource.parse(key)
    assert resource is not None
    return PolicyEntry(resource, actions or (Action.PUB,), Environment(), decision)


def test_an_entry_matches_one_of_the_actions() -> None:
    topic = Resource.topic("t")
    assert _entry("Topic:t", Decision.ALLOW, Action.PUB, Action.GET).matches(topic, [Action.SUB, Action.GET], None)
    assert not _entry("Topic:t", Decision.ALLOW, Action.PUB).matches(topic, [Action.SUB], None)
    assert _entry("Topic:t", Decision.ALLOW, Action.ALL).matches(topic, [Action.DELETE], None)
    assert _entry("Topic:t", Decision.ALLOW, Action.PUB).matches(topic, [Action.ANY], None)


def test_an_update_replaces_what_is_said_of_the_same_resource() -> None:
    acl = Acl(Subject("u"), (Policy(PolicyType.CUSTOM, (_entry("Topic:a"), _entry("Topic:b"))),))
    changed = acl.updated([
        Policy(PolicyType.CUSTOM, (_entry("Topic:a", Decision.DENY), _entry("Topic:c"))),
        Policy(PolicyType.DEFAULT, (_entry("Topic:*"),)),
    ])  # fmt: skip
    custom = changed.policy(PolicyType.CUSTOM)
    assert custom is not None
    assert [(one.resource.key, one.decision) for one in custom.entries] == [
        ("Topic:a", Decision.DENY), ("Topic:b", Decision.ALLOW), ("Topic:c", Decision.ALLOW),
    ]  # fmt: skip
    assert len(changed.policies) == 2
    assert acl.policy(PolicyType.DEFAULT) is None


def test_a_policy_that_says_nothing_more_is_gone() -> None:
    acl = Acl(Subject("u"), (Policy(PolicyType.CUSTOM, (_entry("Topic:a"), _entry("Topic:b"))),))
    once = acl.without(PolicyType.CUSTOM, Resource.topic("a"))
    assert [one.resource.key for one in once.policies[0].entries] == ["Topic:b"]
    assert once.without(PolicyType.DEFAULT, Resource.topic("b")) == once
    assert once.without(PolicyType.CUSTOM, Resource.topic("b")).policies == ()
