"""Sets of lite topics that the proxy remembers for its clients."""

from proxy.clients.lite_sets import LiteSets
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionDTO

_A = LiteSubscriptionAction


def _change(sets: LiteSets, action: LiteSubscriptionAction, *names: str, client_id: str = "c") -> None:
    sets.open(client_id, "G", "T")
    sets.changed(LiteSubscriptionDTO(action, client_id, "G", "T", list(names)))


def _names(sets: LiteSets, client_id: str = "c") -> list[str]:
    found = sets.get(client_id, "G")
    return [] if found is None else list(found.names)


def test_a_set_follows_the_changes_of_its_client() -> None:
    sets = LiteSets()
    _change(sets, _A.PARTIAL_ADD, "a", "b", "b")
    _change(sets, _A.PARTIAL_REMOVE, "a", "x")
    assert _names(sets) == ["b"]
    _change(sets, _A.COMPLETE_ADD, "c", "d")
    sets.taken("c", "G", "d")
    sets.taken("c", "other", "c")
    assert (_names(sets), len(sets)) == (["c"], 1)
    _change(sets, _A.COMPLETE_REMOVE)
    assert (sets.get("c", "G"), len(sets)) == (None, 0)


def test_a_set_of_another_parent_topic_begins_empty() -> None:
    sets = LiteSets()
    _change(sets, _A.COMPLETE_ADD, "a")
    assert sets.open("c", "G", "T").names == {"a": None}
    assert sets.open("c", "G", "Other").names == {}
    assert len(sets) == 0


def test_sets_beyond_the_limit_are_not_kept_and_a_client_that_is_gone_leaves_none() -> None:
    sets = LiteSets(max_names=3)
    _change(sets, _A.PARTIAL_ADD, "a", "b")
    _change(sets, _A.PARTIAL_ADD, "a", "b", client_id="d")
    assert (_names(sets), _names(sets, "d"), len(sets)) == (["a", "b"], [], 2)
    sets.forget("c")
    sets.forget("nobody")
    assert (sets.get("c", "G"), len(sets)) == (None, 0)
