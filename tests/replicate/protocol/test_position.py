"""Where a queue goes on after its source lost its end."""

import pytest

from replicate.protocol.marks import Mark
from replicate.protocol.origins import Origins, Streams
from replicate.protocol.position import Checkpoint, Found, Position


def _rewound() -> Position:
    """100 messages are copied to 0..99, and the source has other messages from 60 on."""
    position = Position(Checkpoint("b", 0, 0, 0))
    position.sent(range(100), 0, (), 0.0)
    position.advance(100)
    position.rewind(60, "a/0/b")
    return position


def _copy(offset: int, place: int | None = None) -> Found:
    return Found(Mark(("a",), "", "b", 0, offset), offset if place is None else place)


@pytest.mark.parametrize(("left", "next_offset"), [(100, 60), (80, 60), (50, 50)])
def test_a_rewound_queue_skips_nothing_though_copies_of_before_are_found(left: int, next_offset: int) -> None:
    position, session = _rewound(), object()
    found = _copy(99) if left == 100 else None  # from the floor on
    was_lost = position.is_lost(found, 0, left)
    assert was_lost is (left < 100)
    stretch = position.locate(found or _copy(left - 1), left, was_lost=was_lost, session=session, now_s=0.0)
    if stretch is not None:
        position.close(stretch)
    assert position.next_offset == next_offset
    assert position.floor == left - 1
    assert position.epoch == 1


def test_a_copy_at_the_place_of_a_lost_one_does_not_stand_for_it() -> None:
    position, session = Position(Checkpoint("b", 0, 0, 0)), object()
    position.sent(range(100), 0, (), 0.0)
    position.advance(100)
    # The target lost 90 to 99, then took two messages of applications, and copies up to 97 again.
    found = _copy(97, 99)
    assert position.is_lost(found, 0, 100)
    stretch = position.locate(found, 100, was_lost=True, session=session, now_s=0.0)
    assert stretch is not None
    position.close(stretch)
    assert position.next_offset == 98
    assert not position.is_lost(found, 0, 100)


def test_no_place_of_before_counts_after_the_target_lost_copies() -> None:
    position, session = Position(Checkpoint("b", 0, 0, 0)), object()
    position.sent(range(90), 0, (), 0.0)
    position.sent(range(90, 100), 95, (), 0.0)  # after five messages of applications
    position.advance(100)
    # The target lost all from 90 on.  Another replicator copied 90 to 97 again, then came messages of applications.
    found = _copy(97)
    assert position.is_lost(None, 0, 104)
    stretch = position.locate(found, 104, was_lost=True, session=session, now_s=0.0)
    assert stretch is not None
    for offset in range(stretch.source, stretch.source_end):
        position.place(offset, offset)
    position.close(stretch)
    assert [position.map.translate(offset) for offset in (50, 90, 97, 98)] == [50, 90, 97, 98]
    assert position.next_offset == 98


def test_a_group_behind_a_rewound_queue_whose_copies_were_lost_skips_nothing() -> None:
    position = _rewound()
    position.locate(_copy(79), 80, was_lost=True, session=object(), now_s=0.0)
    assert position.map.translate(10) == 0
    assert position.map.translate(60) == 80


def _streams(count: int) -> Streams:
    origins = Origins.from_offset(0)
    for offset in range(count):
        origins.note(offset, ("a/0/b", offset))
    return origins.streams


def test_what_another_replicator_has_read_is_not_read_again() -> None:
    position = Position(Checkpoint("b", 0, 0, 1000, streams=_streams(10)), keeps_origins=True)
    position.take_streams(Checkpoint("b", 0, 0, 900, streams=_streams(900)), 0, 5000)
    assert position.read_from == 900
    position.take_streams(Checkpoint("b", 0, 0, 990, streams=_streams(990), epoch=1), 0, 5000)
    assert position.read_from == 900


@pytest.mark.parametrize(("begin", "read_from"), [(0, 1000), (980, 980)])
def test_a_queue_is_not_read_again_beyond_a_limit(begin: int, read_from: int) -> None:
    position = Position(Checkpoint("b", 0, 0, 1000, streams=_streams(10)), keeps_origins=True)
    position.take_streams(None, begin, 500)
    assert position.read_from == read_from
