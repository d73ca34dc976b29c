"""Messages between the two threads of a channel of kombu."""

import os
from collections.abc import Iterator
from typing import cast

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.contrib.kombu.inbox import Inbox
from sprocket.contrib.kombu.reader import Delivery


class _Channel:
    """A channel with room for `room` messages, which takes them at any time."""

    def __init__(self, room: int = 100) -> None:
        self._room = room

    def room(self) -> int:
        return self._room

    def takes(self) -> bool:
        return True


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def _deliveries(count: int) -> list[Delivery]:
    return [cast("Delivery", object()) for _ in range(count)]


def test_what_has_no_room_is_returned(inbox: Inbox) -> None:
    found = _deliveries(5)
    assert inbox.add(_Channel(room=2), found, 1) == found[3:]


def test_channels_take_turns(inbox: Inbox) -> None:
    channels = [_Channel(), _Channel()]
    for channel in channels:
        inbox.add(channel, _deliveries(2), 0)
    popped = [inbox.pop() for _ in range(5)]
    assert [None if one is None else channels.index(cast("_Channel", one[0])) for one in popped] == [0, 1, 0, 1, None]


def test_it_is_readable_until_it_is_cleared(inbox: Inbox) -> None:
    inbox.wake()
    inbox.wake()
    assert inbox.wait(0)
    inbox.clear()
    assert not inbox.wait(0)
    inbox.wake()
    assert inbox.wait(0)


def test_a_forked_child_that_wakes_leaves_nothing_behind(inbox: Inbox) -> None:
    child = os.fork()
    if not child:
        inbox.wake()
        os._exit(0)
    os.waitpid(child, 0)
    assert inbox.wait(0)
    inbox.clear()
    assert not inbox.wait(0)


def test_one_that_is_closed_is_left_alone() -> None:
    inbox = Inbox()
    inbox.wake()
    inbox.close()
    inbox.clear()
    inbox.wake()
