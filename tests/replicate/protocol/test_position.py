"""Where a queue goes on after its source lost its end."""

import pytest

from replicate.protocol.marks import Mark
from replicate.protocol.position import Checkpoint, Found, Position


def _rewound() -> Position:
    """100 messages are copied to 0..99, and the source has other messages from 60 on."""
    position = Position(Checkpoint("b", 0, 0, 0))
    position.sent(range(100), 0, (), 0.0)
    position.advance(100)
    position.rewind(60)
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
