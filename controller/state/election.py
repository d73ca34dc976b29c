"""Choice of a master among the replicas of a group.

Source: RocketMQ 5.3.3, `DefaultElectPolicy`.  It subtracts offsets as 32-bit numbers and breaks ties by the order of a
hash set; here offsets are compared whole, and the smallest broker id wins a tie.

A file of its own: the simulation and the mutants aim at this rule alone.
"""

from collections.abc import Iterable

from controller.state.commands import LiveReplica


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


def _among(alive: list[LiveReplica], old: int | None, preferred: int | None) -> int | None:
    ids = {one.broker_id for one in alive}
    if preferred is not None:
        return preferred if preferred in ids else None
    if old in ids:
        return old
    best = min(alive, key=lambda one: (-one.epoch, -one.max_offset, one.priority, one.broker_id), default=None)
    return None if best is None else best.broker_id
