"""Choice of a master among the replicas of a group.

Source: RocketMQ 5.3.3, `DefaultElectPolicy`.  It subtracts offsets as 32-bit numbers and breaks ties by the order of a
hash set; here offsets are compared whole, and the smallest broker id wins a tie.  `best` and `has_all` are Sprocket's
own: for groups whose master had leases, with facts that were asked for after the end of the last one.

A file of its own: the simulation and the mutants aim at this rule alone.
"""

from collections.abc import Iterable

from controller.state.commands import LiveReplica
from controller.state.group import ALL_IN_SYNC, Group


def choose(
    live: Iterable[LiveReplica], in_sync: Iterable[int], others: Iterable[int], old: int | None, preferred: int | None
) -> int | None:
    """Return the new master, None if nobody may become it.

    Replicas in sync come first, then `others` (empty unless an unclean election is allowed).  The old master stays
    while it is alive, except if an operator prefers another one.  The best replica has the highest epoch, then the
    highest offset, then the lowest priority.
    """
    by_id = {one.broker_id: one for one in live}
    for candidates in (in_sync, others):
        alive = [by_id[broker_id] for broker_id in candidates if broker_id in by_id]
        chosen = _among(alive, old, preferred)
        if chosen is not None:
            return chosen
    return None


def best(replicas: Iterable[LiveReplica], old: int | None) -> int | None:
    """Return the replica with the longest log of the highest epoch, None if there is none.

    Of equal logs that of the old master counts more, then the lowest priority.
    """
    chosen = min(
        replicas,
        key=lambda one: (-one.epoch, -one.max_offset, one.broker_id != old, one.priority, one.broker_id),
        default=None,
    )
    return None if chosen is None else chosen.broker_id


def has_all(in_sync: Iterable[LiveReplica], group: Group, wanted: int | None) -> bool:
    """Return whether `wanted` is among the replicas in sync that answered, and has every acknowledged message.

    A message may be acknowledged if `group.required_acks` replicas have it, counting those in sync that did not answer.
    """
    logs = {one.broker_id: (one.epoch, one.max_offset) for one in in_sync}
    if wanted not in logs:
        return False
    silent = len(group.sync_state_set) + group.forgotten_in_sync - len(logs)
    required = group.required_acks
    if required == ALL_IN_SYNC:
        required = len(group.sync_state_set) + group.forgotten_in_sync
    # With k = 1 the master alone had what it acknowledged: all that can be seen is asked for.
    place = max(1, min((required or 1) - silent, len(logs)))
    return logs[wanted] >= sorted(logs.values(), reverse=True)[place - 1]


def _among(alive: list[LiveReplica], old: int | None, preferred: int | None) -> int | None:
    ids = {one.broker_id for one in alive}
    if preferred is not None:
        return preferred if preferred in ids else None
    if old in ids:
        return old
    best_one = min(alive, key=lambda one: (-one.epoch, -one.max_offset, one.priority, one.broker_id), default=None)
    return None if best_one is None else best_one.broker_id
