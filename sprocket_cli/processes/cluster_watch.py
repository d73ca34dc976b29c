"""Status of the members of a local cluster: processes, registrations, lag of slaves.

An edge file: it polls members while a cluster starts.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sprocket.client.admin.admin_client import AdminClient, AdminError, ConfigRefused
from sprocket.client.admin.at_once import AtOnce
from sprocket.client.admin.cluster_health import UNKNOWN_ID, ClusterHealth, Seen, judge
from sprocket.client.admin.cluster_look import look_at
from sprocket.client.errors import BrokerRefused, PermissionDenied
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError
from sprocket.common.processes.child_process import end_of
from sprocket.remoting.bodies.route import ClusterInfo
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket_cli.processes.local_cluster import HOST, ClusterNotStarted, LocalCluster, Member, Started
from sprocket_cli.processes.profile import REPLICA

_ASK_LIMIT_S: Final = 3.0
# A slave learns its master's address when it registers, and retries every 5 s; slow machines need more.
_UP_LIMIT_S: Final = 90.0
_POLL_S: Final = 0.2
_ASKED_AT_ONCE: Final = 16
_PLAIN_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException"
RUNNING: Final = "running"
REFUSING: Final = "refusing"
# Holds the account that tools sign with, as in RocketMQ.
TOOLS_FILE: Final = "$ROCKETMQ_HOME/conf/tools.yml"


@dataclass(frozen=True)
class MemberStatus:
    """Status of one member at one moment.

    `state` is ``running``; ``unregistered``: a running name server does not know it; ``not following``: a slave
    without a connection to its master; ``silent``: it runs but does not respond; ``refusing``: access control demands
    the signature of an administrator; ``killed``: it ended without `down`; or ``stopped``.
    `log_end` is a physical offset.  `log_end`, `lag_bytes` and `is_in_sync` are None where they do not apply.
    Under controllers `elected_role` is MASTER or SLAVE and `master_epoch` the newest epoch that the broker knows, while
    it responds; elsewhere both are None.
    """

    member: Member
    state: str
    pid: int | None = None
    log_end: int | None = None
    lag_bytes: int | None = None
    is_in_sync: bool | None = None
    elected_role: str | None = None
    master_epoch: int | None = None

    @property
    def role(self) -> str:
        """The role now; REPLICA under controllers if the broker does not tell."""
        return self.elected_role or self.member.role

    @property
    def is_up(self) -> bool:
        """Whether it is running; a slave may still lag far behind."""
        return self.state == RUNNING


class ClusterWatch:
    """Observer of the members of `cluster`; signs its requests with `credentials`."""

    def __init__(self, cluster: LocalCluster, clock: Clock, credentials: Credentials | None = None) -> None:
        self._cluster = cluster
        self._credentials = credentials
        self._clock = clock

    def _admin(self) -> AdminClient:
        name_servers = [one.address for one in self._cluster.name_servers]
        tls = None if self._cluster.tls is None else self._cluster.tls.client_settings()
        return AdminClient(name_servers, timeout_s=_ASK_LIMIT_S, credentials=self._credentials, tls=tls)

    async def health(self) -> ClusterHealth:
        """Return whether sends are confirmed and which brokers are missing.  Raises AdminError."""
        async with self._admin() as admin:
            look = await look_at(admin, AtOnce(_ASKED_AT_ONCE), await admin.cluster_info())
        brokers = (member for member in self._cluster.members if member.is_broker)
        should = [Seen(member.broker_name, UNKNOWN_ID, member.address) for member in brokers]
        return judge(look, should, self._clock.wall_ms())

    async def status(self) -> list[MemberStatus]:
        """Return the status of all members, in the order of the cluster."""
        async with self._admin() as admin:
            found = await asyncio.gather(*(self._one(admin, member) for member in self._cluster.members))
            tables = {status.member.name: status for status, _ in found}
            registered = [addresses for status, addresses in found if addresses is not None]
            for name, status in tables.items():
                if status.member.is_broker and status.state == RUNNING:
                    known = all(status.member.address in addresses for addresses in registered)
                    tables[name] = status if known and registered else replace(status, state="unregistered")
            for group in dict.fromkeys(member.broker_name for member in self._cluster.members if member.is_broker):
                await self._add_slaves(admin, group, tables)
            return list(tables.values())

    async def _one(self, admin: AdminClient, member: Member) -> tuple[MemberStatus, set[str] | None]:
        """Return the status of one member and, for a name server that responds, the registered addresses."""
        pid_file = self._cluster.pid_file(member)
        identity = pid_file.running()
        if identity is None:
            return MemberStatus(member, "killed" if pid_file.exists else "stopped"), None
        running = MemberStatus(member, RUNNING, identity.pid)
        try:
            if member.is_proxy:
                return await _of_proxy(running), None
            if member.is_broker:
                figures = await admin.broker_runtime_info(member.address)
                found = replace(running, log_end=int(figures["commitLogMaxOffset"]))
                return (await _with_role(admin, found, figures) if member.role == REPLICA else found), None
            answer = await admin.ask(member.address, RequestCode.GET_BROKER_CLUSTER_INFO)
            brokers = loads(bytes(answer.body), ClusterInfo).broker_addr_table.values()
            return running, {address for broker in brokers for address in broker.broker_addrs.values()}
        except (AdminError, ProtocolError) as error:
            return replace(running, state=REFUSING if is_refusal(error) else "silent"), None

    async def _add_slaves(self, admin: AdminClient, group: str, tables: dict[str, MemberStatus]) -> None:
        """Add to `tables` what the master of `group` reports about its slaves.

        The master knows slaves only by the addresses of their connections.  So the connection with the highest offset
        is attributed to the slave with the longest log, and so on.
        """
        ours = [one for one in tables.values() if one.member.broker_name == group and one.log_end is not None]
        slaves = [one for one in ours if one.role == "SLAVE"]
        # An old master may not know yet that another one leads.
        master = max((one for one in ours if one.role.endswith("MASTER")), key=_epoch, default=None)
        if not slaves:
            return
        if master is None:
            # Under controllers this is the time between two masters.
            connections = []
            slaves = [one for one in slaves if one.elected_role is not None]
        else:
            try:
                connections = (await _replication(admin, master.member)).ha_connection_info
            except (AdminError, ProtocolError):
                return
        slaves.sort(key=lambda status: -(status.log_end or 0))
        connections.sort(key=lambda connection: -connection.slave_ack_offset)
        for status, connection in zip(slaves, connections, strict=False):
            tables[status.member.name] = replace(status, lag_bytes=connection.diff, is_in_sync=connection.in_sync)
        for status in slaves[len(connections) :]:
            state = "not following" if status.state == RUNNING else status.state
            tables[status.member.name] = replace(status, state=state, is_in_sync=False)

    async def bring_up(self, say: Callable[[str], None]) -> None:
        """Start the members that do not run, and wait until all have registered and connected.

        Raises PortTaken before anything is started.  Raises ClusterNotStarted after stopping what was started here.
        """
        cluster, started = self._cluster, Started()
        cluster.check_ports()
        with started.undone_on_failure():
            # Brokers register with name servers, and slaves learn their masters' addresses from them.
            for members in (cluster.name_servers, cluster.masters, cluster.slaves, cluster.proxies):
                cluster.launch(members, started)
                await self._await_up({member.name for member in members})
            await self._await_up({member.name for member in cluster.members})
        for name in started.names:
            say(f"{name} started")
        started.keep()

    async def _await_up(self, names: set[str]) -> None:
        deadline = self._clock.monotonic() + _UP_LIMIT_S
        while True:
            missing = [one for one in await self.status() if one.member.name in names and not one.is_up]
            if not missing:
                return
            gone = next((one for one in missing if one.pid is None or self._refuses_for_good(one)), None)
            if gone is not None or self._clock.monotonic() > deadline:
                self._give_up(gone or missing[0])
            await asyncio.sleep(_POLL_S)

    def _refuses_for_good(self, status: MemberStatus) -> bool:
        return status.state == REFUSING and self._credentials is None

    def _give_up(self, status: MemberStatus) -> None:
        if status.state == REFUSING:
            text = f"{status.member.name} refuses unsigned requests: name an administrator's account in {TOOLS_FILE}"
            raise ClusterNotStarted(text)
        log = self._cluster.log(status.member)
        raise ClusterNotStarted(f"{status.member.name} is {status.state}; the end of {log}:\n{end_of(log)}")


async def _replication(admin: AdminClient, member: Member) -> HARuntimeInfo:
    """Raises AdminError or ProtocolError."""
    answer = await admin.ask(member.address, RequestCode.GET_BROKER_HA_STATUS)
    return loads(bytes(answer.body), HARuntimeInfo)


async def _with_role(admin: AdminClient, found: MemberStatus, figures: Mapping[str, str]) -> MemberStatus:
    """Add the role that controllers decided.  Raises AdminError or ProtocolError."""
    epoch, replication = int(figures.get("controllerMasterEpoch", -1)), await _replication(admin, found.member)
    role = "MASTER" if replication.master else "SLAVE"
    return replace(found, elected_role=role, master_epoch=None if epoch < 0 else epoch)


def _epoch(status: MemberStatus) -> int:
    return -1 if status.master_epoch is None else status.master_epoch


async def _of_proxy(running: MemberStatus) -> MemberStatus:
    """Return the status of a proxy: it accepts connections once it serves."""
    try:
        async with asyncio.timeout(_ASK_LIMIT_S):
            _, writer = await asyncio.open_connection(HOST, running.member.port)
    except (OSError, TimeoutError):
        return replace(running, state="silent")
    writer.close()
    return running


def is_refusal(error: BaseException) -> bool:
    """Return whether access control refused; ACL 1.0 has no response code of its own for that."""
    if isinstance(error, PermissionDenied):
        return True
    if not isinstance(error, AdminError | BrokerRefused) or isinstance(error, ConfigRefused):
        return False
    return error.code == ResponseCode.NO_PERMISSION or _PLAIN_REFUSAL in str(error)
