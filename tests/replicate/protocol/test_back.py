"""Limits of translated offsets where a link leads back."""

from replicate.protocol.back import NO_LINK, Back
from replicate.protocol.copies import SourceQueue

_QUEUE = SourceQueue("east", "Orders", "broker-a", 0)


def test_without_a_link_back_there_is_no_limit() -> None:
    back = Back()
    back.copied[_QUEUE] = NO_LINK
    assert back.limit(_QUEUE, 100, 0) == NO_LINK


def test_a_queue_that_was_not_looked_at_is_not_skipped() -> None:
    assert Back().limit(_QUEUE, 0, 0) == 0


def test_the_limit_follows_when_what_came_back_was_read() -> None:
    back = Back()
    back.copied[_QUEUE] = 700
    assert back.limit(_QUEUE, 2200, 1500) == 0
    back.copied[_QUEUE] = 1500
    assert back.limit(_QUEUE, 3000, 2199) == 0
    assert back.limit(_QUEUE, 3000, 2200) == 700
    assert back.limit(_QUEUE, 3100, 2900) == 700
    assert back.limit(_QUEUE, 3100, 3100) == 1500


def test_under_steady_load_the_limit_follows_the_looks_before() -> None:
    back = Back()
    found = []
    for number in range(1, 6):
        back.copied[_QUEUE] = number * 100
        # The link is always a little behind the end.
        found.append(back.limit(_QUEUE, number * 1000, number * 1000 - 1))
    assert found == [0, 100, 200, 300, 400]
