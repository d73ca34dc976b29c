"""Which brokers are alive: the last heartbeat of each.

Every controller counts for itself, because brokers send heartbeats to all of them.  Times are of a monotonic clock.

Differences from RocketMQ, which measures with the wall clock.  The latest heartbeat counts, not the one with the
highest offset: a replica that truncated its log has less than before.  A broker that connects again is found by its new
connection.  A second broker with the same id does not replace the first while the first is alive.  A controller that
has just started has no heartbeats yet: a master counts as alive until its first one, for the usual time of expiry.
Source: RocketMQ 5.3.3, `DefaultBrokerHeartbeatManager`, `BrokerLiveInfo`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller.state.commands import LiveReplica
from controller.state.group import Group
from sprocket.common import limits

# `BrokerHeartbeatManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`
DEFAULT_TIMEOUT_MS: Final = 10_000
# A controller that has just started takes a silent master with leases for alive during this many leases.
_UNHEARD_LEASES: Final = 4
# Of a broker that reports none: `Integer.MAX_VALUE`, -1 and -1.
LOWEST_PRIORITY: Final = 2**31 - 1
UNKNOWN: Final = -1

# Cluster, broker name, broker id.
BrokerKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Last heartbeat of one broker, and the connection that it came by."""

    cluster: str
    name: str
    broker_id: int
    address: str
    channel_id: int
    timeout_ms: int
    epoch: int
    max_offset: int
    confirm_offset: int
    priority: int
    # It has led in this epoch, or was elected for it, and does not lead any more.
    resigned_epoch: int = UNKNOWN
    asks_lease: bool = False

    @property
    def key(self) -> BrokerKey:
        return self.cluster, self.name, self.broker_id


@dataclass(slots=True)
class _Seen:
    heartbeat: Heartbeat
    at_ms: int

    def is_fresh(self, now_ms: int) -> bool:
        return now_ms - self.at_ms <= self.heartbeat.timeout_ms


class LiveBrokers:
    """Table of heartbeats.  `started_ms` is when this controller began to listen."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._seen: dict[BrokerKey, _Seen] = {}
        # Brokers that have sent a heartbeat since the start.
        self._heard: set[BrokerKey] = set()

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def keys(self) -> list[BrokerKey]:
        """The brokers that were heard and have not been silent for too long at the last scan."""
        return list(self._seen)

    def beat(self, heartbeat: Heartbeat, now_ms: int) -> str:
        """Note a heartbeat.  Return why it is refused, or the empty text."""
        held = self._seen.get(heartbeat.key)
        if held is None:
            if len(self._seen) >= limits.MAX_LIVE_BROKERS:
                return f"{len(self._seen)} brokers send heartbeats, the limit"
        elif held.heartbeat.address != heartbeat.address and held.is_fresh(now_ms):
            return (
                f"broker id {heartbeat.broker_id} of {heartbeat.name} is in use by {held.heartbeat.address}, "
                f"which is alive; the broker at {heartbeat.address} needs a directory of its own"
            )
        self._seen[heartbeat.key] = _Seen(heartbeat, now_ms)
        if len(self._heard) < limits.MAX_LIVE_BROKERS:
            self._heard.add(heartbeat.key)
        return ""

    def expire(self, now_ms: int, *, spares_leaders: bool = False) -> list[Heartbeat]:
        """Remove and return the brokers that were silent for too long; masters with leases may be spared."""
        silent = [
            seen.heartbeat
            for seen in self._seen.values()
            if not seen.is_fresh(now_ms) and not (spares_leaders and seen.heartbeat.asks_lease)
        ]
        for heartbeat in silent:
            del self._seen[heartbeat.key]
        return silent

    def close_channel(self, channel_id: int) -> list[Heartbeat]:
        """Remove and return the brokers whose heartbeats came by a connection that is closed."""
        gone = [seen.heartbeat for seen in self._seen.values() if seen.heartbeat.channel_id == channel_id]
        for heartbeat in gone:
            del self._seen[heartbeat.key]
        return gone

    def forget(self, key: BrokerKey) -> Heartbeat | None:
        """Remove a broker, which stops.  Return its last heartbeat, None if there was none."""
        seen = self._seen.pop(key, None)
        return None if seen is None else seen.heartbeat

    def has_resigned(self, group: Group) -> bool:
        """Return whether the group's master said that it does not lead any more."""
        seen = self._seen.get((group.cluster, group.name, group.master_id or UNKNOWN))
        return seen is not None and seen.heartbeat.resigned_epoch == group.master_epoch

    def is_live(self, key: BrokerKey, now_ms: int) -> bool:
        """Return whether a broker's heartbeats come."""
        seen = self._seen.get(key)
        return seen is not None and seen.is_fresh(now_ms)

    def live_ids(self, group: Group, now_ms: int) -> tuple[int, ...]:
        """Return the ids of the members whose heartbeats come."""
        return tuple(one for one in group.broker_ids if self.is_live((group.cluster, group.name, one), now_ms))

    def live(self, group: Group, now_ms: int) -> tuple[LiveReplica, ...]:
        """Return the members whose heartbeats come."""
        found = []
        for broker_id in group.broker_ids:
            seen = self._seen.get((group.cluster, group.name, broker_id))
            if seen is not None and seen.is_fresh(now_ms):
                beat = seen.heartbeat
                found.append(LiveReplica(beat.broker_id, beat.address, beat.epoch, beat.max_offset, beat.priority))
        return tuple(found)

    def candidates(self, group: Group, now_ms: int) -> tuple[LiveReplica, ...]:
        """Return the members that are alive, with the master if it may be."""
        live = self.live(group, now_ms)
        master = group.replica(group.master_id)
        if master is None or any(one.broker_id == master.broker_id for one in live):
            return live
        if not self._may_live(group, now_ms):
            return live
        return (*live, LiveReplica(master.broker_id, master.address, UNKNOWN, UNKNOWN, LOWEST_PRIORITY))

    def master_may_live(self, group: Group, now_ms: int) -> bool:
        """Return whether the group has a master that is alive, or was not heard of yet."""
        if group.master_id is None:
            return False
        key = group.cluster, group.name, group.master_id
        if self.has_resigned(group):
            return False
        return self.is_live(key, now_ms) or self._may_live(group, now_ms)

    def headless(self, groups: Iterator[Group], now_ms: int) -> list[Group]:
        """Return the groups whose master is lost while another member is alive."""
        return [
            group
            for group in groups
            if group.master_id is not None and not self.master_may_live(group, now_ms) and self.live_ids(group, now_ms)
        ]

    def _may_live(self, group: Group, now_ms: int) -> bool:
        """Return whether the master may be alive although it sent no heartbeat since this controller's start."""
        has_leases = group.required_acks is not None
        limit_ms = min(DEFAULT_TIMEOUT_MS, _UNHEARD_LEASES * group.lease_ms) if has_leases else DEFAULT_TIMEOUT_MS
        key = group.cluster, group.name, UNKNOWN if group.master_id is None else group.master_id
        return key not in self._heard and now_ms - self._started_ms <= limit_ms
