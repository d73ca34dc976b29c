"""Decision on each command: from the group before to its outcome and the group after.  Pure.

Checks, their order, codes and remarks are RocketMQ's, with these additions, each refused by name: a request about a
group of another cluster, a group with too many members, an election of a broker that the group does not have, and a
broker id whose owner is alive at another address.
Source: RocketMQ 5.3.3, `ReplicasInfoManager`.
"""

from typing import Final

import msgspec

from controller.state import election
from controller.state.commands import (
    AcceptTerms,
    AdoptGroup,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    Outcome,
    Read,
    RegisterBroker,
)
from controller.state.group import FIRST_BROKER_ID, Group, Replica, ordered
from sprocket.common import limits
from sprocket.remoting.codes import ResponseCode as Code

# Outcome, and the group after it: the same object if nothing changes, None if there is no group.
Decision = tuple[Outcome, Group | None]
# Of a request of the controller itself; `ElectMasterRequestHeader.ofControllerTrigger`.
NOBODY: Final = -1


def decide(before: Group | None, command: Command) -> Decision:
    """Return the decision on `command`, given the group that it is about."""
    if isinstance(command, AlterSyncStateSet):
        return _alter(before, command)
    if isinstance(command, ElectMaster):
        return _elect(before, command)
    if isinstance(command, ApplyBrokerId):
        return _apply_id(before, command)
    if isinstance(command, RegisterBroker):
        return _register(before, command)
    if isinstance(command, CleanBrokerData):
        return _clean(before, command)
    if isinstance(command, AcceptTerms):
        return _accept_terms(before, command)
    if isinstance(command, AdoptGroup):
        return _adopt(before, command)
    assert isinstance(command, Read)
    return Outcome(group=before), before


def _alter(before: Group | None, asked: AlterSyncStateSet) -> Decision:
    if before is None:
        return Outcome(Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed"), None
    wanted = ordered(asked.sync_state_set)
    refusal = _refused_alteration(before, asked, wanted)
    if refusal is not None:
        return refusal, before
    epoch = before.sync_state_set_epoch + 1
    after = msgspec.structs.replace(before, sync_state_set=wanted, sync_state_set_epoch=epoch, forgotten_in_sync=0)
    return Outcome(group=after), after


def _refused_alteration(before: Group, asked: AlterSyncStateSet, wanted: tuple[int, ...]) -> Outcome | None:
    rejecting = "Rejecting alter syncStateSet request because"
    failed = Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if wanted == before.sync_state_set:
        return Outcome(failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet")
    if before.master_id is None or before.master_id != asked.master_id:
        says = f"{rejecting} the current leader is:{{{_java(before.master_id)}}}, not {{{_java(asked.master_id)}}}"
        return Outcome(Code.CONTROLLER_INVALID_MASTER, says)
    if before.master_epoch != asked.master_epoch:
        says = f"{rejecting} the current master epoch is:{{{before.master_epoch}}}, not {{{asked.master_epoch}}}"
        return Outcome(Code.CONTROLLER_FENCED_MASTER_EPOCH, says)
    if before.sync_state_set_epoch != asked.sync_state_set_epoch:
        current = before.sync_state_set_epoch
        says = f"{rejecting} the current syncStateSet epoch is:{{{current}}}, not {{{asked.sync_state_set_epoch}}}"
        return Outcome(Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, says)
    for broker_id in wanted:
        if before.replica(broker_id) is None:
            says = f"{rejecting} the replicas {{{broker_id}}} don't exist"
            return Outcome(Code.CONTROLLER_INVALID_REPLICAS, says)
        if broker_id not in asked.live:
            return Outcome(Code.CONTROLLER_BROKER_NOT_ALIVE, f"{rejecting} the replicas {{{broker_id}}} don't alive")
    if before.master_id not in wanted:
        return Outcome(failed, f"{rejecting} the newSyncStateSet don't contains origin leader {{{before.master_id}}}")
    return None


def _elect(before: Group | None, asked: ElectMaster) -> Decision:
    if before is None:
        return Outcome(Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered"), None
    if asked.cluster and asked.cluster != before.cluster:
        return _other_cluster(before, asked.cluster, Code.CONTROLLER_INVALID_REQUEST), before
    by_broker = asked.broker_id is not None and asked.broker_id != NOBODY
    if by_broker and before.replica(asked.broker_id) is None:
        says = f"Broker-set: {before.name} has no broker with brokerId: {asked.broker_id}"
        return Outcome(Code.CONTROLLER_ELECT_MASTER_FAILED, says), before
    wanted = asked.broker_id if by_broker else None
    if before.required_acks is not None:
        refusal = _refused_election(before, asked)
        if refusal is not None:
            return refusal, before
        chosen = _chosen_exactly(before, asked, wanted)
    else:
        chosen = _chosen(before, asked, wanted)
    if chosen is not None and chosen == before.master_id and not asked.has_resigned:
        says = f"The old master {chosen} is still alive, not need to elect new master for broker {before.name}"
        return Outcome(Code.CONTROLLER_MASTER_STILL_EXIST, says, before), before
    if chosen is not None:
        after = msgspec.structs.replace(
            before,
            master_id=chosen,
            master_epoch=before.master_epoch + 1,
            sync_state_set=(chosen,),
            sync_state_set_epoch=before.sync_state_set_epoch + 1,
            required_acks=None,
            lease_ms=0,
            forgotten_in_sync=0,
        )
        return Outcome(group=after), after
    if before.required_acks is not None:
        return Outcome(Code.CONTROLLER_MASTER_NOT_AVAILABLE, _too_few(before, asked)), before
    if by_broker:
        return Outcome(Code.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master"), before
    says = "Old master has down and failed to elect a new broker master"
    if before.master_id is None:
        return Outcome(Code.CONTROLLER_MASTER_NOT_AVAILABLE, says), before
    # The sync-state set stays: only its members have everything that was acknowledged.
    after = msgspec.structs.replace(before, master_id=None, master_epoch=before.master_epoch + 1)
    return Outcome(Code.CONTROLLER_MASTER_NOT_AVAILABLE, says), after


def _chosen(before: Group, asked: ElectMaster, broker_id: int | None) -> int | None:
    # The first broker of a new group to ask becomes its master.
    if before.master_epoch == 0 and broker_id is not None:
        return broker_id
    others = before.broker_ids if asked.allows_unclean else ()
    preferred = broker_id if asked.is_designated else None
    old = None if asked.has_resigned else before.master_id
    return election.choose(asked.live, before.sync_state_set, others, old, preferred)


def _refused_election(before: Group, asked: ElectMaster) -> Outcome | None:
    """Return why no master is elected in a group whose master had leases, None if one may be."""
    alive = {one.broker_id for one in asked.live}
    if not asked.is_exact:
        if not asked.is_designated and not asked.has_resigned and before.master_id in alive:
            says = f"The old master {before.master_id} is still alive, not need to elect new master for broker"
            return Outcome(Code.CONTROLLER_MASTER_STILL_EXIST, f"{says} {before.name}", before)
        says = f"Broker-set: {before.name} has leases: its replicas must be asked for their logs first"
        return Outcome(Code.CONTROLLER_ELECT_MASTER_FAILED, says)
    then = asked.master_epoch, asked.sync_state_set_epoch
    if then != (before.master_epoch, before.sync_state_set_epoch):
        says = f"Broker-set: {before.name} has changed since its replicas were asked"
        return Outcome(Code.CONTROLLER_ELECT_MASTER_FAILED, says)
    return None


def _chosen_exactly(before: Group, asked: ElectMaster, broker_id: int | None) -> int | None:
    in_sync = [one for one in asked.live if one.broker_id in before.sync_state_set]
    is_led = not asked.has_resigned and any(one.broker_id == before.master_id for one in in_sync)
    if is_led and not asked.is_designated:
        return before.master_id
    if len(in_sync) < before.answers_needed:
        return election.best(asked.live, before.master_id) if asked.allows_unclean else None
    if asked.is_designated:
        return broker_id if election.has_all(in_sync, before, broker_id) else None
    return election.best(in_sync, before.master_id)


def _too_few(before: Group, asked: ElectMaster) -> str:
    answered = [one.broker_id for one in asked.live if one.broker_id in before.sync_state_set]
    says = f"Broker-set: {before.name}: of the replicas in sync {list(before.sync_state_set)} answered {answered}"
    if len(answered) < before.answers_needed:
        return f"{says}, {before.answers_needed} must: start the others"
    return (
        f"{says}; broker {asked.broker_id} is not among them or lacks messages of others: try again, or choose another"
    )


def _accept_terms(before: Group | None, asked: AcceptTerms) -> Decision:
    if before is None:
        return Outcome(Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered"), None
    if before.master_id != asked.master_id:
        says = f"the current leader is:{{{_java(before.master_id)}}}, not {{{asked.master_id}}}"
        return Outcome(Code.CONTROLLER_INVALID_MASTER, says), before
    if asked.master_epoch != before.master_epoch:
        says = f"the current master epoch is:{{{before.master_epoch}}}, not {{{asked.master_epoch}}}"
        return Outcome(Code.CONTROLLER_FENCED_MASTER_EPOCH, says), before
    # Leases that were granted before may be longer than those from now on.
    lease_ms = max(before.lease_ms, asked.lease_ms)
    if (before.required_acks, before.lease_ms) == (asked.required_acks, lease_ms):
        return Outcome(group=before), before
    after = msgspec.structs.replace(before, required_acks=asked.required_acks, lease_ms=lease_ms)
    return Outcome(group=after), after


def _adopt(before: Group | None, asked: AdoptGroup) -> Decision:
    """Only the master is in sync at first: it knows best who else is, and says so."""
    invalid = Code.CONTROLLER_INVALID_REQUEST
    if before is not None:
        says = f"Broker-set: {asked.name} is known here already: forget it with cleanBrokerMetadata -l, or leave it"
        return Outcome(invalid, says), before
    ids = [broker_id for broker_id, _ in asked.brokers]
    if len(ids) > limits.MAX_GROUP_REPLICAS:
        return Outcome(invalid, f"Broker-set: {asked.name} has {len(ids)} brokers: clean those that are gone"), None
    is_sound = len(set(ids)) == len(ids) and asked.master_id in ids
    is_sound = is_sound and min(ids) >= FIRST_BROKER_ID and max(ids) < asked.next_broker_id
    if not is_sound or min(asked.master_epoch, asked.sync_state_set_epoch) < 1:
        says = f"Broker-set: {asked.name}: ids {ids}, next {asked.next_broker_id}, master {asked.master_id} do not fit"
        return Outcome(invalid, says), None
    after = Group(
        cluster=asked.cluster,
        name=asked.name,
        next_broker_id=asked.next_broker_id,
        # Nobody has the check code of an id that was assigned elsewhere.
        replicas=tuple(Replica(broker_id, address, "") for broker_id, address in sorted(asked.brokers)),
        master_id=asked.master_id,
        master_epoch=asked.master_epoch,
        sync_state_set=(asked.master_id,),
        sync_state_set_epoch=asked.sync_state_set_epoch,
    )
    return Outcome(group=after), after


def _apply_id(before: Group | None, asked: ApplyBrokerId) -> Decision:
    invalid = Code.CONTROLLER_BROKER_ID_INVALID
    if before is None:
        if asked.broker_id != FIRST_BROKER_ID:
            says = (
                f"Broker-set: {asked.name} hasn't been registered in controller, "
                f"but broker try to apply brokerId: {asked.broker_id}"
            )
            return Outcome(invalid, says), None
        after = _with_replica(Group(cluster=asked.cluster, name=asked.name), asked)
        return Outcome(group=after), after
    if asked.cluster != before.cluster:
        return _other_cluster(before, asked.cluster, invalid), before
    held = before.replica(asked.broker_id)
    if held is not None:
        if held.check_code == asked.check_code:
            return Outcome(group=before), before
        return Outcome(invalid, f"Fail to apply brokerId: {asked.broker_id} in broker-set: {asked.name}"), before
    if len(before.replicas) >= limits.MAX_GROUP_REPLICAS:
        says = f"Broker-set: {asked.name} has {len(before.replicas)} brokers, the limit; clean those that are gone"
        return Outcome(invalid, says), before
    after = _with_replica(before, asked)
    return Outcome(group=after), after


def _with_replica(group: Group, asked: ApplyBrokerId) -> Group:
    new = Replica(asked.broker_id, asked.check_code.split(";")[0], asked.check_code)
    replicas = tuple(sorted((*group.replicas, new), key=lambda one: one.broker_id))
    return msgspec.structs.replace(group, replicas=replicas, next_broker_id=group.next_broker_id + 1)


def _register(before: Group | None, asked: RegisterBroker) -> Decision:
    needed = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if before is None:
        return Outcome(needed, f"Broker-set: {asked.name} hasn't been registered in controller"), None
    if asked.cluster != before.cluster:
        return _other_cluster(before, asked.cluster, Code.CONTROLLER_INVALID_REQUEST), before
    held = before.replica(asked.broker_id)
    if held is None:
        says = f"BrokerId: {asked.broker_id} hasn't been registered in broker-set: {asked.name}"
        return Outcome(needed, says), before
    if held.address == asked.address:
        return Outcome(group=before), before
    if any(one.broker_id == asked.broker_id and one.address != asked.address for one in asked.live):
        says = (
            f"BrokerId: {asked.broker_id} in broker-set: {asked.name} is in use by the broker at {held.address}, "
            f"which is alive; the broker at {asked.address} needs a directory of its own"
        )
        return Outcome(Code.CONTROLLER_BROKER_ID_INVALID, says), before
    replicas = tuple(
        msgspec.structs.replace(one, address=asked.address) if one is held else one for one in before.replicas
    )
    after = msgspec.structs.replace(before, replicas=replicas)
    return Outcome(group=after), after


def _clean(before: Group | None, asked: CleanBrokerData) -> Decision:
    invalid = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if before is None:
        return Outcome(invalid, f"Broker {asked.name} is not existed,clean broker data failure."), None
    if asked.cluster and asked.cluster != before.cluster:
        return _other_cluster(before, asked.cluster, invalid), before
    if not asked.includes_living:
        if not asked.broker_ids and before.master_id is not None:
            return Outcome(invalid, f"Broker {asked.name} is still alive, clean up failure"), before
        living = next((one for one in asked.broker_ids if one in asked.live), None)
        if living is not None:
            return Outcome(invalid, f"Broker [{asked.name},  {living}] is still alive, clean up failure"), before
    kept = tuple(one for one in before.replicas if one.broker_id not in asked.broker_ids)
    if not asked.broker_ids or not kept:
        return Outcome(), None
    if kept == before.replicas:
        return Outcome(), before
    lost_master = before.master_id in asked.broker_ids
    sync_state_set = tuple(one for one in before.sync_state_set if one not in asked.broker_ids)
    after = msgspec.structs.replace(
        before,
        replicas=kept,
        master_id=None if lost_master else before.master_id,
        master_epoch=before.master_epoch + lost_master,
        sync_state_set=sync_state_set,
        sync_state_set_epoch=before.sync_state_set_epoch + (sync_state_set != before.sync_state_set),
        forgotten_in_sync=before.forgotten_in_sync + len(before.sync_state_set) - len(sync_state_set),
    )
    return Outcome(), after


def _other_cluster(group: Group, cluster: str, code: Code) -> Outcome:
    return Outcome(code, f"Broker-set: {group.name} belongs to cluster {group.cluster}, not to {cluster}")


def _java(broker_id: int | None) -> str:
    return "null" if broker_id is None else str(broker_id)
