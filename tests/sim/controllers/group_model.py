"""What the controllers may answer about one broker group, given its state before: the model of the checker.

The rules are written a second time, from docs/failover.md, and know neither Raft nor heartbeats.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sprocket.remoting.codes import ResponseCode as Code
from tests.checkers.linearizability import Call


@dataclass(frozen=True)
class View:
    """A group as its clients see it."""

    master_id: int | None = None
    master_epoch: int = 0
    in_sync: tuple[int, ...] = ()
    set_epoch: int = 0

    def led_by(self, broker_id: int) -> "View":
        """Return the group after an election."""
        return View(broker_id, self.master_epoch + 1, (broker_id,), self.set_epoch + 1)

    def headless(self) -> "View":
        """Return the group after an election that found nobody."""
        return replace(self, master_id=None, master_epoch=self.master_epoch + 1)


NEW: Final = View()


@dataclass(frozen=True)
class Read:
    """GET_REPLICA_INFO; the answer is a View."""


@dataclass(frozen=True)
class Alter:
    """ALTER_SYNC_STATE_SET by the master of `seen`; the answer is a code."""

    seen: View
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class Elect:
    """ELECT_MASTER; the answer is (code, View without the set or None)."""

    broker_id: int


@dataclass(frozen=True)
class Own:
    """An election of the controllers' own, with the group after it.  Its outcome is always unknown to clients."""

    after: View


def step(state: View, call: Call) -> Iterable[View]:
    """Return the states after `call`; none if its answer cannot come from `state`."""
    asked = call.asked
    if isinstance(asked, Read):
        return [state] if call.answer == state else []
    if isinstance(asked, Alter):
        return _altered(state, asked, None if call.is_unknown else call.answer)
    if isinstance(asked, Elect):
        return _elected(state, asked, None if call.is_unknown else call.answer)
    assert isinstance(asked, Own)
    return [asked.after] if asked.after in _elections(state) else []


def _altered(state: View, asked: Alter, code: int | None) -> Iterable[View]:
    seen, wanted = asked.seen, asked.wanted
    is_due = (seen.master_id, seen.master_epoch, seen.set_epoch) == (
        state.master_id, state.master_epoch, state.set_epoch,
    )  # fmt: skip
    may_change = is_due and state.master_id is not None and state.master_id in wanted and wanted != state.in_sync
    changed = replace(state, in_sync=wanted, set_epoch=state.set_epoch + 1)
    if code is None:
        return [changed] if may_change else [state]
    if code == Code.SUCCESS:
        return [changed] if may_change else []
    is_master = state.master_id is not None and seen.master_id == state.master_id
    is_right = {
        Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED: wanted == state.in_sync or state.master_id not in wanted,
        Code.CONTROLLER_INVALID_MASTER: not is_master,
        Code.CONTROLLER_FENCED_MASTER_EPOCH: is_master and seen.master_epoch != state.master_epoch,
        Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH: is_master and seen.set_epoch != state.set_epoch,
        Code.CONTROLLER_INVALID_REPLICAS: is_due,
        Code.CONTROLLER_BROKER_NOT_ALIVE: is_due,
    }
    return [state] if is_right[Code(code)] else []


def _elected(state: View, asked: Elect, answer: tuple[int, View | None] | None) -> Iterable[View]:
    if answer is None:
        return [*_elections(state), state]
    code, told = answer
    if code == Code.SUCCESS:
        return [after for after in _elections(state, asked.broker_id) if told == replace(after, in_sync=())]
    if code == Code.CONTROLLER_MASTER_STILL_EXIST:
        return [state] if told == replace(state, in_sync=()) else []
    if code == Code.CONTROLLER_MASTER_NOT_AVAILABLE:
        return [state if state.master_id is None else state.headless()]
    assert code == Code.CONTROLLER_ELECT_MASTER_FAILED, code
    return [state]


def _elections(state: View, asked_by: int | None = None) -> list[View]:
    """Return the states that an election may lead to: a replica in sync, or nobody."""
    may_lead = state.in_sync if state.master_epoch else (() if asked_by is None else (asked_by,))
    found = [state.led_by(one) for one in may_lead if one != state.master_id]
    return found if state.master_id is None else [*found, state.headless()]
