"""Lease of a link: of several replicators with the same link one copies, the others wait.

It is a lock of a queue at a broker of the target, as consumers of ordered queues take it.  It saves work and bandwidth;
that two replicators double nothing does not depend on it.  Source of the lock: RocketMQ, `RebalanceLockManager`.
"""

from typing import Final

from replicate.cluster import Cluster
from replicate.queue_source import GROUP
from replicate.records import TOPIC
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import MessageQueue

RENEW_S: Final = 15.0
# A broker keeps a lock for 60 s after its last renewal.
_HOLDS_S: Final = 45.0


class Lease:
    """Lease of the link from `source` to `target`, for the replicator `owner`: no other one may have its name."""

    def __init__(self, target: Cluster, source: str, owner: str, clock: Clock) -> None:
        self._target = target
        self.group = f"{GROUP}-{source}"
        self.owner = owner
        self._clock = clock
        self._ends_s = 0.0
        self._lock: tuple[str, MessageQueue] | None = None  # the broker that gave it, and what was locked

    @property
    def is_held(self) -> bool:
        """Whether this replicator may copy."""
        return self._clock.monotonic() < self._ends_s

    async def renew(self) -> None:
        """Take or keep the lease.  The first broker that answers and has the topic decides.

        Raises AdminError if none does.
        """
        begun_s, groups = self._clock.monotonic(), GroupAdmin(self._target.admin)
        failure = AdminError("the target has no master")
        for name, address in (await self._target.masters()).items():
            queue = MessageQueue(TOPIC, name, 0)
            try:
                is_ours = await groups.lock(address, self.group, self.owner, queue)
                if not is_ours and await self._target.admin.topic_config(address, TOPIC) is None:
                    failure = AdminError(f"no master has the topic {TOPIC}: {name} has not")
                    continue  # it came to the cluster later
            except AdminError as error:
                failure = error
                continue
            self._ends_s = begun_s + _HOLDS_S if is_ours else 0.0
            self._lock = (address, queue) if is_ours else None
            return
        raise failure

    async def release(self) -> None:
        """End the lease, so that another replicator need not wait.  Raises AdminError."""
        self._ends_s = 0.0
        if self._lock is not None:
            address, queue = self._lock
            await GroupAdmin(self._target.admin).unlock(address, self.group, self.owner, queue)
