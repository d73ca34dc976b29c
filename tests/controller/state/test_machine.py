"""The replicated state as a whole: equal bytes everywhere, snapshots, invariants, and what it cannot read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.state.commands import (
    ApplyBrokerId,
    Command,
    Outcome,
    Read,
    UnreadableState,
    decode_command,
    decode_outcome,
    encode_command,
)
from controller.state.machine import ControllerMachine
from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode as Code
from tests.controller.state.script import COMMANDS


def machine() -> ControllerMachine:
    def fail(error: UnreadableState) -> None:
        raise AssertionError(error)

    return ControllerMachine(fail)


def run(on: ControllerMachine, command: Command) -> Outcome:
    return decode_outcome(on.apply(encode_command(command)))


@given(st.lists(COMMANDS, max_size=60), st.integers(0, 60))
def test_the_same_log_gives_the_same_bytes_also_from_a_snapshot(script: list[Command], cut: int) -> None:
    one, other, late = machine(), machine(), machine()
    answers = []
    for number, command in enumerate(script):
        if number == cut:
            late.restore(one.snapshot())
        answer = one.apply(encode_command(command))
        answers.append(answer)
        if number >= cut:
            assert late.apply(encode_command(command)) == answer
    assert [other.apply(encode_command(command)) for command in script] == answers
    assert one.snapshot() == other.snapshot()
    if cut < len(script):
        assert late.snapshot() == one.snapshot()


@given(st.lists(COMMANDS, max_size=60))
def test_what_always_holds(script: list[Command]) -> None:
    on = machine()
    before = {group.name: group for group in on.groups()}
    for command in script:
        preview = on.unchanged_by(command)
        bytes_before = on.snapshot()
        outcome = run(on, command)
        # A preview is the outcome, and nothing changes.
        assert preview is None or (outcome == preview and on.snapshot() == bytes_before)
        after = {group.name: group for group in on.groups()}
        for name, group in after.items():
            assert set(group.sync_state_set) <= set(group.broker_ids)
            assert group.master_id is None or group.master_id in group.broker_ids
            old = before.get(name)
            if old is not None and old.next_broker_id <= group.next_broker_id and old.cluster == group.cluster:
                assert group.master_epoch >= old.master_epoch
                assert group.sync_state_set_epoch >= old.sync_state_set_epoch
                # One epoch has one master.
                if old.master_epoch == group.master_epoch and old.master_id is not None:
                    assert group.master_id == old.master_id
        before = after


@given(COMMANDS)
def test_a_command_survives_its_bytes(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@given(st.binary(max_size=200))
def test_bytes_that_are_no_snapshot_change_nothing(data: bytes) -> None:
    on = machine()
    run(on, ApplyBrokerId(name="a", cluster="c", broker_id=1, check_code="h:1;1"))
    before = on.snapshot()
    try:
        on.restore(data)
    except ValueError:
        assert on.snapshot() == before


def test_a_snapshot_and_an_entry_of_a_version_without_leases_are_read() -> None:
    replica = [1, "h:1", "h:1;1"]
    old = [["c", "broker-a", 2, [replica], 1, 4, [1], 5]]
    on = machine()
    on.restore(b"\x01" + msgspec.msgpack.encode(old))
    (group,) = on.groups()
    assert (group.master_epoch, group.sync_state_set, group.required_acks) == (4, (1,), None)
    entry = [2, "broker-a", "c", None, False, False, [[1, "h:1", 1, 5, 0]]]
    assert decode_outcome(on.apply(b"\x01" + msgspec.msgpack.encode(entry))).code == Code.CONTROLLER_MASTER_STILL_EXIST


def test_an_entry_of_a_newer_version_stops_the_controller() -> None:
    told: list[UnreadableState] = []
    on = ControllerMachine(told.append)
    newer = b"\x02" + encode_command(Read(name="a"))[1:]
    assert decode_outcome(on.apply(newer)).code == Code.SYSTEM_ERROR
    (error,) = told
    assert str(error) == "command of version 2; this controller reads version 1: upgrade it"


def test_a_command_that_is_too_large_is_refused_before_the_log() -> None:
    huge = ApplyBrokerId(name="x" * limits.MAX_CONTROLLER_COMMAND_BYTES, cluster="c", broker_id=1, check_code="h:1;1")
    with pytest.raises(RequestError, match="the limit is 65536"):
        encode_command(huge)


def test_groups_and_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONTROLLER_GROUPS", 2)
    monkeypatch.setattr(limits, "MAX_GROUP_REPLICAS", 2)
    monkeypatch.setattr(limits, "MAX_CONTROLLER_REPLICAS", 3)
    on = machine()

    def add(name: str, broker_id: int) -> Outcome:
        return run(on, ApplyBrokerId(name=name, cluster="c", broker_id=broker_id, check_code=f"h:{broker_id};1"))

    assert [add("a", 1).code, add("a", 2).code, add("b", 1).code] == [0, 0, 0]
    assert "2 broker-sets, the limit" in str(add("c", 1).remark)
    assert "has 2 brokers, the limit" in str(add("a", 3).remark)
    assert "knows 3" in str(add("b", 2).remark).replace("know 3", "knows 3")
    # A broker that asks again for its own id is still answered.
    assert add("a", 2).code == 0
