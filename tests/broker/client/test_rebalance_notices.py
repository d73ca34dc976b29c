"""Notices to the members of changed groups: how many, and in which turn of the loop."""

from typing import Any

from broker.client.clients import ConsumerGroup, Member
from broker.client.rebalance_notices import RebalanceNotices
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock

MAX_IN_A_TURN = 64


class Rig:
    def __init__(self) -> None:
        self.timers = ManualTimers(ManualClock())
        self.is_enabled = True
        self.notices = RebalanceNotices(lambda: self.is_enabled, self.timers.call_later)
        self.told: list[tuple[int, str]] = []

    def group(self, name: str, members: int) -> ConsumerGroup:
        group = ConsumerGroup(name)
        for number in range(members):
            group.members[number] = Member(Channel(number, self.told), f"c{number}", "JAVA", 479, 0.0)  # type: ignore[arg-type]
        return group

    def turn(self) -> int:
        """Run what a turn of the loop has to do; return how many members were told."""
        before = len(self.told)
        self.timers.turn()
        return len(self.told) - before


class Channel:
    def __init__(self, number: int, told: list[tuple[int, str]]) -> None:
        self.id = number
        self._told = told

    def notify(self, code: int, header: Any = None, body: bytes = b"") -> None:
        self._told.append((self.id, header.consumer_group))


def test_many_changes_of_one_turn_are_one_notice_to_each_member() -> None:
    rig = Rig()
    one, two = rig.group("A", 3), rig.group("B", 1)
    for _ in range(1000):
        rig.notices.changed(one)
    rig.notices.changed(two)
    assert rig.told == []
    assert rig.turn() == 4
    assert rig.told == [(0, "A"), (1, "A"), (2, "A"), (0, "B")]
    assert rig.turn() == 0 and rig.timers.pending == []


def test_the_members_of_a_large_group_are_told_in_several_turns() -> None:
    rig = Rig()
    group = rig.group("A", 1000)
    rig.notices.changed(group)
    counts = [rig.turn()]
    del group.members[999]
    rig.notices.changed(group)  # again, while it is being told
    while rig.timers.pending:
        counts.append(rig.turn())
    assert max(counts) <= MAX_IN_A_TURN
    assert sum(counts) == 1000 + 999


def test_nobody_is_told_while_that_is_off() -> None:
    rig = Rig()
    rig.is_enabled = False
    rig.notices.changed(rig.group("A", 1))
    assert rig.timers.pending == [] and rig.told == []
    rig.is_enabled = True
    rig.notices.changed(rig.group("A", 1))
    assert rig.turn() == 1
