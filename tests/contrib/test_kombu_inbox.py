"""Messages between the two threads of a channel of kombu."""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.contrib.kombu.inbox import Inbox
from sprocket.contrib.kombu.reader import Delivery, QueueReader


class _Channel:
    """A channel of `inbox` with a prefetch count, which takes messages at any time."""

    def __init__(self, inbox: Inbox, prefetch: int = 100) -> None:
        self._inbox, self._prefetch = inbox, prefetch

    def room(self) -> int:
        return self._prefetch - self._inbox.waiting(self)

    def takes(self) -> bool:
        return True


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def _deliveries(count: int, reader: object = None) -> list[Delivery]:
    return [cast("Delivery", SimpleNamespace(reader=reader)) for _ in range(count)]


def test_the_newest_messages_of_a_reader_without_room_can_be_taken_back(inbox: Inbox) -> None:
    reader, channel = cast("QueueReader", object()), _Channel(inbox, prefetch=2)
    found = [*_deliveries(1), *_deliveries(4, reader)]
    inbox.add(channel, found)
    assert inbox.surplus(channel, reader) == found[:1:-1]
    assert [inbox.pop() for _ in range(3)] == [(channel, found[0]), (channel, found[1]), None]


def test_channels_take_turns(inbox: Inbox) -> None:
    channels = [_Channel(inbox), _Channel(inbox)]
    for channel in channels:
        inbox.add(channel, _deliveries(2))
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
