"""The cluster map: roles, replication, versions, disks, and what is wrong.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dashboard.asking.cluster import ClusterAnswers
from dashboard.views.words import duration, size
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.cluster_health import ClusterHealth, ClusterLook, Seen, Trouble, judge
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.stats import HARuntimeInfo, figure, first_average

# RocketMQ's own: above the first it warns, above the second it refuses sends (diskSpaceWarningLevelRatio).
_DISK_WARNING: Final = 0.75
_DISK_FULL: Final = 0.90


@dataclass(frozen=True, kw_only=True)
class SlaveRow:
    """A slave as its master sees it."""

    address: str
    lag_bytes: int
    is_in_sync: bool
    speed_bytes: int
    behind: str


@dataclass(frozen=True, kw_only=True)
class BrokerRow:
    """One broker; figures are empty texts or None if it does not answer."""

    cluster: str
    name: str
    id: int
    role: str
    address: str
    is_alive: bool
    why_not: str = ""
    version: str = ""
    uptime: str = ""
    put_per_s: float = 0.0
    got_per_s: float = 0.0
    put_today: int = 0
    got_today: int = 0
    disk_ratio: float = 0.0
    disk_capacity: str = ""
    put_p99_ms: str = ""
    replication: str = ""
    slaves: tuple[SlaveRow, ...] = ()
    log_end: int = 0


@dataclass(frozen=True)
class NameServerRow:
    """One name server."""

    address: str
    is_alive: bool
    why_not: str


@dataclass(frozen=True)
class ClusterMap:
    """All of it; brokers in the order of cluster, name and id."""

    name_servers: tuple[NameServerRow, ...]
    brokers: tuple[BrokerRow, ...]
    health: ClusterHealth
    problems: tuple[Trouble, ...]

    @property
    def replicas(self) -> int:
        """Members that should be there."""
        return sum(group.replicas for group in self.health.groups)

    @property
    def gone(self) -> int:
        """Members that should be there and are not."""
        return sum(len(group.gone) for group in self.health.groups)

    @property
    def put_per_s(self) -> float:
        """Messages per second into all masters."""
        return sum(row.put_per_s for row in self.brokers if row.id == MASTER_ID)

    @property
    def got_per_s(self) -> float:
        """Messages per second out of all brokers."""
        return sum(row.got_per_s for row in self.brokers)


def cluster_map(answers: ClusterAnswers, seen: Iterable[Seen], now_ms: int) -> ClusterMap:
    """Return the map of what servers answered; `seen` are brokers that answered earlier."""
    look = answers.look
    name_servers = tuple(
        NameServerRow(
            address, not isinstance(outcome, AdminError), str(outcome) if isinstance(outcome, AdminError) else ""
        )
        for address, outcome in answers.name_servers.items()
    )
    brokers = tuple(
        _broker(cluster, name, id_, address, look, now_ms)
        for cluster, names in sorted(look.info.cluster_addr_table.items())
        for name in sorted(names)
        if name in look.info.broker_addr_table
        for id_, address in sorted(look.info.broker_addr_table[name].broker_addrs.items())
    )
    health = judge(look, seen, now_ms)
    return ClusterMap(name_servers, brokers, health, (*health.troubles, *_problems(name_servers, brokers)))


def _broker(cluster: str, name: str, id_: int, address: str, look: ClusterLook, now_ms: int) -> BrokerRow:
    role = "master" if id_ == MASTER_ID else "slave"
    runtime = look.runtime[address]
    if isinstance(runtime, AdminError):
        return BrokerRow(
            cluster=cluster, name=name, id=id_, role=role, address=address, is_alive=False, why_not=str(runtime)
        )
    replication = look.replication.get(address)
    status = None if isinstance(replication, AdminError) else replication
    boot_ms = int(figure(runtime, "bootTimestamp"))
    sprocket = runtime.get("sprocketVersion", "")
    protocol = runtime.get("brokerVersionDesc", "")
    return BrokerRow(
        cluster=cluster,
        name=name,
        id=id_,
        role=role,
        address=address,
        is_alive=True,
        version=f"Sprocket {sprocket} ({protocol})" if sprocket else protocol,
        uptime=duration(now_ms - boot_ms) if boot_ms else "",
        put_per_s=first_average(runtime, "putTps"),
        got_per_s=first_average(runtime, "getTransferredTps") or first_average(runtime, "getTransferedTps"),
        put_today=_today(runtime, "Put"),
        got_today=_today(runtime, "Get"),
        disk_ratio=figure(runtime, "commitLogDiskRatio"),
        disk_capacity=runtime.get("commitLogDirCapacity", ""),
        put_p99_ms=runtime.get("putLatency99", "") if first_average(runtime, "putTps") else "",
        replication=_replication(status, id_),
        slaves=_slaves(status),
        log_end=int(figure(runtime, "commitLogMaxOffset")),
    )


def _replication(status: HARuntimeInfo | None, id_: int) -> str:
    if status is None:
        return "unknown"
    if status.master:
        count = len(status.ha_connection_info)
        return f"{status.in_sync_slave_nums} of {count} connected slaves in sync" if count else "no slave"
    own = status.ha_client_runtime_info
    behind = max(0, own.master_flush_offset - own.max_offset)
    master = own.master_addr or "an unknown master"
    return f"follows {master}, {size(behind)} behind" if id_ != MASTER_ID else ""


def _slaves(status: HARuntimeInfo | None) -> tuple[SlaveRow, ...]:
    if status is None or not status.master:
        return ()
    return tuple(
        SlaveRow(
            address=one.addr,
            lag_bytes=one.diff,
            is_in_sync=one.in_sync,
            speed_bytes=one.transferred_byte_in_second,
            behind=duration(one.behind_millis) if one.behind_millis > 0 else "",
        )
        for one in status.ha_connection_info
    )


def _problems(name_servers: Iterable[NameServerRow], brokers: tuple[BrokerRow, ...]) -> Iterable[Trouble]:
    for server in name_servers:
        if not server.is_alive:
            yield Trouble(
                "name servers",
                f"Name server {server.address} does not answer: {server.why_not}",
                "Check that it runs and that its port is open. The other name servers go on.",
            )
    if not brokers:
        yield Trouble("brokers", "No broker is registered", "Start a broker with the address of these name servers.")
    for row in brokers:
        if row.disk_ratio >= _DISK_FULL:
            yield Trouble(
                "disk",
                f"The disk of broker {row.name} is full to {row.disk_ratio:.0%}: it refuses sends soon or now",
                "Free space, add a disk, or lower fileReservedTime.",
            )
        elif row.disk_ratio >= _DISK_WARNING:
            yield Trouble(
                "disk",
                f"The disk of broker {row.name} is full to {row.disk_ratio:.0%}",
                "Free space, or lower fileReservedTime before sends are refused.",
            )


def _today(runtime: Mapping[str, str], way: str) -> int:
    return int(figure(runtime, f"msg{way}TotalTodayNow") - figure(runtime, f"msg{way}TotalTodayMorning"))
