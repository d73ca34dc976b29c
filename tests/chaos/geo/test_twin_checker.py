"""The checker finds each kind of fault."""

from tests.chaos.geo.twin_checker import problems

_QUEUE = ("broker-0", 0)


def _checked(east: list[str], west: list[str]) -> list[str]:
    contents = {"east": {_QUEUE: east}, "west": {_QUEUE: west}}
    return problems(contents, {"east": {"east-1", "east-2"}, "west": {"west-1"}})


def test_copies_may_stand_between_others() -> None:
    assert _checked(["east-1", "west-1", "east-2"], ["east-1", "east-2", "west-1"]) == []


def test_a_lost_message_is_found() -> None:
    assert _checked(["east-1", "west-1"], ["east-1", "west-1"]) == ["east-2 was acknowledged by east and is lost"]


def test_a_message_that_was_not_copied_is_found() -> None:
    assert _checked(["east-1", "east-2", "west-1"], ["east-1", "west-1"]) == ["east-2 is not in west"]


def test_a_message_that_came_back_is_found() -> None:
    found = _checked(["east-1", "east-2", "west-1", "east-1"], ["east-1", "east-2", "west-1"])
    assert len(found) == 2 and "stands twice in east" in found[0] and "before" in found[1]


def test_copies_in_another_order_are_found() -> None:
    found = _checked(["east-1", "east-2", "west-1"], ["east-2", "east-1", "west-1"])
    assert len(found) == 1 and "east-2 stands before east-1 in west" in found[0]


def test_copies_in_two_queues_are_found() -> None:
    contents = {
        "east": {_QUEUE: ["east-1", "east-2"]},
        "west": {_QUEUE: ["east-1"], ("broker-1", 0): ["east-2"]},
    }
    assert len(problems(contents, {"east": set(), "west": set()})) == 1
