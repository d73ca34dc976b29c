"""Each check of a command, with RocketMQ's code and remark, and what is refused beyond RocketMQ."""

from typing import Any

import msgspec
import pytest

from controller.state.commands import (
    AcceptTerms,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Outcome,
    RegisterBroker,
)
from controller.state.decisions import decide
from controller.state.group import Group, Replica
from sprocket.remoting.codes import ResponseCode as Code

GROUP = Group(
    cluster="c",
    name="a",
    next_broker_id=4,
    replicas=(Replica(1, "h:1", "h:1;5"), Replica(2, "h:2", "h:2;6"), Replica(3, "h:3", "h:3;7")),
    master_id=1,
    master_epoch=2,
    sync_state_set=(1, 2),
    sync_state_set_epoch=3,
)


def live(*ids: int, **fields: Any) -> tuple[LiveReplica, ...]:
    return tuple(
        LiveReplica(one, f"h:{one}", **({"epoch": 2, "max_offset": 10, "priority": 0} | fields)) for one in ids
    )


def refusal(before: Group | None, command: Command) -> tuple[int, str | None]:
    """Return code and remark of a command that must change nothing."""
    outcome, after = decide(before, command)
    assert after is before
    return outcome.code, outcome.remark


def done(before: Group | None, command: Command) -> tuple[Outcome, Group]:
    outcome, after = decide(before, command)
    assert outcome.code == Code.SUCCESS, outcome
    assert after is not None
    return outcome, after


def alter(*ids: int, **changes: Any) -> AlterSyncStateSet:
    fields: dict[str, Any] = {"master_id": 1, "master_epoch": 2, "sync_state_set_epoch": 3, "live": (1, 2, 3)}
    return AlterSyncStateSet(name="a", sync_state_set=ids, **(fields | changes))


@pytest.mark.parametrize(
    ("command", "code", "remark"),
    [
        (alter(2, 1), Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "The newSyncStateSet is equal with oldSyncStateSet"),
        (alter(1, 2, 3, master_id=2), Code.CONTROLLER_INVALID_MASTER, "the current leader is:{1}, not {2}"),
        (alter(1, 2, 3, master_id=None), Code.CONTROLLER_INVALID_MASTER, "the current leader is:{1}, not {null}"),
        (alter(1, 2, 3, master_epoch=1), Code.CONTROLLER_FENCED_MASTER_EPOCH, "master epoch is:{2}, not {1}"),
        (
            alter(1, 2, 3, sync_state_set_epoch=4),
            Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            "syncStateSet epoch is:{3}, not {4}",
        ),
        (alter(1, 9), Code.CONTROLLER_INVALID_REPLICAS, "the replicas {9} don't exist"),
        (alter(1, 2, 3, live=(1, 2)), Code.CONTROLLER_BROKER_NOT_ALIVE, "the replicas {3} don't alive"),
        (alter(2, 3), Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "don't contains origin leader {1}"),
        (alter(), Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "don't contains origin leader {1}"),
    ],
)
def test_a_wrong_sync_state_set_is_refused(command: Command, code: Code, remark: str) -> None:
    found, said = refusal(GROUP, command)
    assert found == code
    assert remark in str(said)


def test_a_sync_state_set_of_an_unknown_group_is_refused() -> None:
    assert refusal(None, alter(1)) == (Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed")


def test_a_sync_state_set_grows_and_shrinks() -> None:
    outcome, grown = done(GROUP, alter(3, 1, 2))
    assert outcome.group == grown
    assert (grown.sync_state_set, grown.sync_state_set_epoch, grown.master_epoch) == ((1, 2, 3), 4, 2)
    _, shrunk = done(grown, alter(1, sync_state_set_epoch=4))
    assert (shrunk.sync_state_set, shrunk.sync_state_set_epoch) == ((1,), 5)


def elect(broker_id: int | None, *ids: int, **changes: Any) -> ElectMaster:
    fields: dict[str, Any] = {"cluster": "c", "is_designated": False, "allows_unclean": False, "live": live(*ids)}
    return ElectMaster(name="a", broker_id=broker_id, **(fields | changes))


def test_the_first_broker_that_asks_leads_a_new_group() -> None:
    _, new = done(None, apply_id(1))
    _, led = done(new, elect(1))
    assert (led.master_id, led.master_epoch, led.sync_state_set, led.sync_state_set_epoch) == (1, 1, (1,), 1)
    assert refusal(new, elect(7))[0] == Code.CONTROLLER_ELECT_MASTER_FAILED


def test_a_replica_in_sync_replaces_a_lost_master() -> None:
    outcome, after = done(GROUP, elect(None, 2, 3))
    assert (after.master_id, after.master_epoch, after.sync_state_set, after.sync_state_set_epoch) == (2, 3, (2,), 4)
    assert outcome.group == after


def test_a_living_master_stays() -> None:
    for broker_id in (None, -1, 2):
        code, said = refusal(GROUP, elect(broker_id, 1, 2, 3))
        assert code == Code.CONTROLLER_MASTER_STILL_EXIST
        assert said == "The old master 1 is still alive, not need to elect new master for broker a"


def test_an_operator_moves_the_master_to_a_replica_in_sync_that_is_alive() -> None:
    _, after = done(GROUP, elect(2, 1, 2, is_designated=True))
    assert after.master_id == 2
    for wanted, alive in ((3, (1, 2, 3)), (2, (1, 3))):
        code, said = refusal(GROUP, elect(wanted, *alive, is_designated=True))
        assert (code, said) == (Code.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
    assert refusal(GROUP, elect(1, 1, is_designated=True))[0] == Code.CONTROLLER_MASTER_STILL_EXIST


def test_no_unclean_replica_leads_while_a_clean_one_lives() -> None:
    more = live(2, max_offset=1) + live(3, max_offset=99)
    _, after = done(GROUP, elect(None, live=more, allows_unclean=True))
    assert after.master_id == 2
    _, after = done(GROUP, elect(None, 3, allows_unclean=True))
    assert after.master_id == 3


def test_without_a_clean_replica_the_group_has_no_master_and_keeps_its_sync_state_set() -> None:
    outcome, after = decide(GROUP, elect(None, 3))
    assert (outcome.code, outcome.group) == (Code.CONTROLLER_MASTER_NOT_AVAILABLE, None)
    assert after is not None
    assert (after.master_id, after.master_epoch) == (None, 3)
    assert (after.sync_state_set, after.sync_state_set_epoch) == ((1, 2), 3)
    # An election without a result is not repeated in the log, and a broker that asks for itself changes nothing.
    assert refusal(after, elect(None, 3))[0] == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert refusal(after, elect(3, 3)) == (Code.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
    _, again = done(after, elect(2, 2, 3))
    assert (again.master_id, again.master_epoch) == (2, 4)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"epoch": 3, "max_offset": 1}, {"epoch": 2, "max_offset": 9}),
        ({"max_offset": 2**40}, {"max_offset": 1}),
        ({"priority": 1}, {"priority": 2}),
    ],
)
def test_the_best_replica_leads(better: dict[str, int], worse: dict[str, int]) -> None:
    group = decide(GROUP, alter(1, 2, 3))[1]
    for ids in ((2, 3), (3, 2)):
        facts = live(ids[0], **better) + live(ids[1], **worse)
        assert done(group, elect(None, live=facts))[1].master_id == ids[0]


def test_the_smallest_id_wins_a_tie() -> None:
    group = decide(GROUP, alter(1, 2, 3))[1]
    assert done(group, elect(None, 3, 2))[1].master_id == 2


# A group whose master asks for leases: an acknowledged message is on two of three replicas.
LEASED = msgspec.structs.replace(GROUP, sync_state_set=(1, 2, 3), required_acks=2, lease_ms=1_000)


def logs(**ends: int) -> tuple[LiveReplica, ...]:
    """Replicas with the ends of their logs: ``b2=10``."""
    return tuple(live(int(name[1:]), max_offset=end)[0] for name, end in ends.items())


def exactly(answers: tuple[LiveReplica, ...], broker_id: int | None = None, **changes: Any) -> ElectMaster:
    fields: dict[str, Any] = {"is_exact": True, "master_epoch": 2, "sync_state_set_epoch": 3}
    return elect(broker_id, live=answers, **(fields | changes))


def test_terms_are_those_of_the_current_master() -> None:
    asked = AcceptTerms(name="a", master_id=1, master_epoch=2, required_acks=2, lease_ms=1_000)
    _, after = done(GROUP, asked)
    assert (after.required_acks, after.lease_ms, after.master_epoch, after.sync_state_set_epoch) == (2, 1_000, 2, 3)
    assert done(after, asked)[1] is after
    # An earlier lease may still be as long as before.
    assert done(after, msgspec.structs.replace(asked, lease_ms=10, required_acks=1))[1].lease_ms == 1_000
    for wrong, code in (
        ({"master_id": 2}, Code.CONTROLLER_INVALID_MASTER),
        ({"master_epoch": 1}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
    ):
        assert refusal(GROUP, msgspec.structs.replace(asked, **wrong))[0] == code
    assert refusal(None, asked)[0] == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_the_longest_log_of_enough_answers_leads() -> None:
    _, after = done(LEASED, exactly(logs(b2=10, b3=11)))
    assert (after.master_id, after.master_epoch, after.sync_state_set, after.required_acks) == (3, 3, (3,), None)
    # The epoch of a log counts more than its length.
    answers = (*logs(b2=99), *live(3, epoch=3, max_offset=1))
    assert done(LEASED, exactly(answers))[1].master_id == 3


def test_too_few_answers_elect_nobody_and_change_nothing() -> None:
    code, said = refusal(LEASED, exactly(logs(b3=11)))
    assert code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert "of the replicas in sync [1, 2, 3] answered [3], 2 must: start the others" in str(said)
    assert refusal(LEASED, exactly(()))[0] == Code.CONTROLLER_MASTER_NOT_AVAILABLE


@pytest.mark.parametrize(("required", "needed"), [(0, 1), (1, 1), (2, 2), (3, 1), (4, 1)])
def test_how_many_answers_are_needed(required: int, needed: int) -> None:
    group = msgspec.structs.replace(LEASED, required_acks=required)
    assert group.answers_needed == needed
    answers = logs(b2=10, b3=10)[:needed]
    assert done(group, exactly(answers))[1].master_id == 2
    assert refusal(group, exactly(answers[1:]))[0] == Code.CONTROLLER_MASTER_NOT_AVAILABLE


def test_a_group_with_leases_elects_nobody_by_heartbeats() -> None:
    code, said = refusal(LEASED, elect(None, 2, 3))
    assert code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert "its replicas must be asked for their logs first" in str(said)
    assert refusal(LEASED, elect(None, 1, 2, 3))[0] == Code.CONTROLLER_MASTER_STILL_EXIST


@pytest.mark.parametrize("changed", [{"master_epoch": 1}, {"sync_state_set_epoch": 2}])
def test_answers_count_only_for_the_group_as_it_was(changed: dict[str, int]) -> None:
    code, said = refusal(LEASED, exactly(logs(b2=10, b3=10), **changed))
    assert (code, said) == (
        Code.CONTROLLER_ELECT_MASTER_FAILED,
        "Broker-set: a has changed since its replicas were asked",
    )


def test_a_master_that_answers_goes_on_unless_it_resigned() -> None:
    assert refusal(LEASED, exactly(logs(b1=1, b2=9)))[0] == Code.CONTROLLER_MASTER_STILL_EXIST
    assert refusal(LEASED, exactly(logs(b1=1)))[0] == Code.CONTROLLER_MASTER_STILL_EXIST
    assert done(LEASED, exactly(logs(b1=1, b2=9), has_resigned=True))[1].master_id == 2
    # With the log of the others it leads again, in an epoch of its own.
    _, after = done(LEASED, exactly(logs(b1=9, b2=9), has_resigned=True))
    assert (after.master_id, after.master_epoch) == (1, 3)
    without = msgspec.structs.replace(LEASED, required_acks=None)
    assert done(without, elect(None, 1, has_resigned=True))[1].master_epoch == 3


def test_no_exact_election_is_unclean_while_a_clean_one_is_possible() -> None:
    group = msgspec.structs.replace(LEASED, sync_state_set=(1, 2))
    assert done(group, exactly(logs(b2=1, b3=99), allows_unclean=True))[1].master_id == 2
    assert done(group, exactly(logs(b3=99), allows_unclean=True))[1].master_id == 3
    assert refusal(group, exactly(logs(b3=99)))[0] == Code.CONTROLLER_MASTER_NOT_AVAILABLE


def test_an_operator_gets_only_a_replica_that_has_every_acknowledged_message() -> None:
    def designated(required: int, **ends: int) -> int:
        group = msgspec.structs.replace(LEASED, required_acks=required)
        return decide(group, exactly(logs(**ends), 3, is_designated=True))[0].code

    # On two of three: the second longest log has it all.
    assert designated(2, b1=9, b2=5, b3=5) == Code.SUCCESS
    assert designated(2, b1=9, b2=5, b3=4) == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    # The one that is silent may be the second that has it.
    assert designated(2, b1=9, b3=8) == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert designated(0, b1=9, b2=8, b3=7) == Code.SUCCESS
    assert designated(1, b1=9, b3=8) == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert designated(2, b1=9, b2=9) == Code.CONTROLLER_MASTER_NOT_AVAILABLE


def test_a_replica_that_is_forgotten_may_have_been_the_one_that_had_a_message() -> None:
    _, after = done(LEASED, clean(1, live=(), includes_living=True))
    assert (after.sync_state_set, after.answers_needed) == ((2, 3), 2)
    fields = {"master_epoch": 3, "sync_state_set_epoch": 4}
    assert refusal(after, exactly(logs(b2=9), **fields))[0] == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert done(after, exactly(logs(b2=9, b3=9), **fields))[1].master_id == 2
    # If so many are forgotten, those that are left decide.
    _, after = done(LEASED, clean(1, 3, live=(), includes_living=True))
    assert (after.sync_state_set, after.answers_needed) == ((2,), 1)


def test_an_election_of_an_unknown_group_broker_or_cluster_is_refused() -> None:
    needed = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert refusal(None, elect(1)) == (needed, "Broker hasn't been registered")
    code, said = refusal(GROUP, elect(9, 9))
    assert (code, said) == (Code.CONTROLLER_ELECT_MASTER_FAILED, "Broker-set: a has no broker with brokerId: 9")
    code, said = refusal(GROUP, elect(2, 2, cluster="d"))
    assert (code, said) == (Code.CONTROLLER_INVALID_REQUEST, "Broker-set: a belongs to cluster c, not to d")


def apply_id(broker_id: int, check_code: str = "h:9;1", cluster: str = "c") -> ApplyBrokerId:
    return ApplyBrokerId(name="a", cluster=cluster, broker_id=broker_id, check_code=check_code)


def test_broker_ids_are_assigned_in_turn_and_once() -> None:
    _, group = done(None, apply_id(1, "h:1;1"))
    assert (group.replicas, group.next_broker_id) == ((Replica(1, "h:1", "h:1;1"),), 2)
    # A broker that did not hear the answer asks again.
    assert done(group, apply_id(1, "h:1;1"))[1] is group
    code, said = refusal(group, apply_id(1, "h:2;1"))
    assert (code, said) == (Code.CONTROLLER_BROKER_ID_INVALID, "Fail to apply brokerId: 1 in broker-set: a")
    _, group = done(group, apply_id(2, "h:2;1"))
    assert (group.broker_ids, group.next_broker_id) == ((1, 2), 3)


def test_a_wrong_first_id_or_cluster_is_refused() -> None:
    code, said = refusal(None, apply_id(2))
    assert code == Code.CONTROLLER_BROKER_ID_INVALID
    assert said == "Broker-set: a hasn't been registered in controller, but broker try to apply brokerId: 2"
    code, said = refusal(GROUP, apply_id(4, cluster="d"))
    assert (code, said) == (Code.CONTROLLER_BROKER_ID_INVALID, "Broker-set: a belongs to cluster c, not to d")


def register(broker_id: int, address: str, cluster: str = "c", alive: tuple[LiveReplica, ...] = ()) -> RegisterBroker:
    return RegisterBroker(name="a", cluster=cluster, broker_id=broker_id, address=address, live=alive)


def test_a_registration_moves_the_address_of_a_known_broker() -> None:
    assert done(GROUP, register(2, "h:2"))[1] is GROUP
    _, after = done(GROUP, register(2, "k:2"))
    assert after.replica(2) == Replica(2, "k:2", "h:2;6")


def test_a_registration_of_an_unknown_broker_is_refused() -> None:
    needed = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert refusal(None, register(1, "h:1")) == (needed, "Broker-set: a hasn't been registered in controller")
    assert refusal(GROUP, register(9, "h:9")) == (needed, "BrokerId: 9 hasn't been registered in broker-set: a")
    assert refusal(GROUP, register(2, "h:2", "d"))[0] == Code.CONTROLLER_INVALID_REQUEST


def test_a_broker_id_whose_owner_is_alive_is_not_taken_over() -> None:
    code, said = refusal(GROUP, register(2, "copy:2", alive=live(2)))
    assert code == Code.CONTROLLER_BROKER_ID_INVALID
    assert "is in use by the broker at h:2, which is alive; the broker at copy:2 needs a directory of its own" in str(
        said
    )


def clean(*ids: int, **changes: Any) -> CleanBrokerData:
    fields: dict[str, Any] = {"cluster": "c", "includes_living": False, "live": (1, 2)}
    return CleanBrokerData(name="a", broker_ids=ids, **(fields | changes))


def test_metadata_of_living_brokers_is_not_cleaned_unless_it_is_asked_for() -> None:
    invalid = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert refusal(GROUP, clean()) == (invalid, "Broker a is still alive, clean up failure")
    assert refusal(GROUP, clean(3, 2)) == (invalid, "Broker [a,  2] is still alive, clean up failure")
    assert refusal(None, clean(1)) == (invalid, "Broker a is not existed,clean broker data failure.")
    assert refusal(GROUP, clean(3, cluster="d"))[1] == "Broker-set: a belongs to cluster c, not to d"
    assert done(GROUP, clean(3))[1].broker_ids == (1, 2)


def test_cleaning_living_brokers_cleans_those_alone() -> None:
    # RocketMQ 5.3.3 ignores the ids then, and forgets the whole group.
    _, after = done(GROUP, clean(1, includes_living=True))
    assert (after.broker_ids, after.master_id, after.sync_state_set) == ((2, 3), None, (2,))
    assert (after.master_epoch, after.sync_state_set_epoch, after.next_broker_id) == (3, 4, 4)
    assert decide(GROUP, clean(includes_living=True)) == (Outcome(), None)
    assert decide(GROUP, clean(1, 2, 3, includes_living=True)) == (Outcome(), None)
    assert refusal(GROUP, clean(9)) == (0, None)
