"""Elections that the controller starts because a master is lost, and the notices about new masters.

Only the leader elects.  A controller that begins to lead looks for lost masters at once: the master may have died
together with the leader.  RocketMQ looks after scanInactiveMasterInterval.
Source: RocketMQ 5.3.3, `ControllerManager.onBrokerInactive`, `triggerElectMaster`, `notifyBrokerRoleChanged`,
`DLedgerController.scanInactiveMasterAndTriggerReelect`.
"""

import asyncio
import logging
from collections.abc import Iterable

from controller.config import ControllerConfig
from controller.elections import Elections
from controller.live_brokers import Heartbeat
from controller.replica_service import ReplicaService
from controller.state.group import Group
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import ClientError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader

logger = logging.getLogger(__name__)

# Pause before replicas are asked again for their logs.
_RETRY_S = 0.3


class Failover:
    """Elections and notices of one controller.  `client` reaches brokers; it belongs to the caller."""

    def __init__(
        self, service: ReplicaService, client: RemotingClient, settings: LiveSettings[ControllerConfig]
    ) -> None:
        self._service = service
        self._client = client
        self._settings = settings
        self.elections = Elections(service, client)
        # One election at a time for each group.
        self._electing: dict[str, asyncio.Task[None]] = {}
        # The newest notice to each broker that has not left yet, with its epoch.
        self._notifying: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._forgetting: asyncio.Task[None] | None = None

    @property
    def electing(self) -> frozenset[str]:
        """Groups with an election of this controller that has not ended."""
        return frozenset(self._electing)

    def lost(self, brokers: Iterable[Heartbeat], reason: str) -> None:
        """Elect a new master where one of `brokers` is the master."""
        for broker in brokers:
            group = self._service.known_group(broker.name)
            if group is None or group.cluster != broker.cluster or group.replica(broker.broker_id) is None:
                continue  # anybody may send heartbeats of brokers that nobody knows
            peer_lines.warning(
                logger, broker.address, "event=broker_lost cluster=%s group=%s broker_id=%d addr=%s reason=%s",
                broker.cluster, broker.name, broker.broker_id, broker.address, reason,
            )  # fmt: skip
            if group.master_id == broker.broker_id and self._service.is_leader:
                self._start_election(broker.name)

    def resigned(self, broker: Heartbeat) -> None:
        """Elect a new master, because the old one does not lead any more."""
        if self._service.resigns(broker) and self._service.is_leader:
            self._start_election(broker.name)

    def left(self, broker: Heartbeat) -> None:
        """Forget a broker that stops.  Elect a new master if it was one."""
        self._service.leaves(broker)
        self.lost([broker], "stops")

    def returned(self, broker: Heartbeat) -> None:
        """Try again to elect a master where too few replicas answered: one more is alive."""
        group = self._service.known_group(broker.name)
        if group is None or group.required_acks is None or not self._service.is_leader:
            return
        if not self._service.master_may_live(group):
            self._start_election(broker.name)

    def scan(self, *, spares_leaders: bool = False) -> None:
        """Elect a new master for each group that has lost its own while another member is alive.

        Masters with leases may be spared, because this controller did not read their heartbeats.
        """
        if self._service.is_leader:
            for group in self._service.headless():
                if group.required_acks is None or not spares_leaders:
                    self._start_election(group.name)
            if self._forgetting is None:
                self._forgetting = asyncio.get_running_loop().create_task(self._forget_ghosts())

    async def _forget_ghosts(self) -> None:
        try:
            await self._service.forget_ghosts()
        except RequestError:
            pass  # another controller leads now, or the next scan tries again
        finally:
            self._forgetting = None

    def announce(self, group: Group) -> None:
        """Notify the members of `group` that are alive of its master and its sync-state set, if this is enabled."""
        if not self._settings.current.notify_broker_role_changed or group.master_id is None:
            return
        for replica in group.replicas:
            if self._service.is_live(group, replica.broker_id):
                self._start_notice(replica.address, group)

    async def close(self) -> None:
        """Stop all elections and notices."""
        tasks = [*self._electing.values(), *(task for _, task in self._notifying.values())]
        tasks += [] if self._forgetting is None else [self._forgetting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_election(self, name: str) -> None:
        if name in self._electing:
            return
        task = asyncio.get_running_loop().create_task(self._elect(name))
        self._electing[name] = task
        task.add_done_callback(lambda _: self._electing.pop(name, None))

    async def _elect(self, name: str) -> None:
        for attempt in range(self._settings.current.elect_master_max_retry_count):
            try:
                outcome = await self.elections.elect(name, "", None, is_designated=False)
            except RequestError as error:
                peer_lines.warning(
                    logger, "", "event=election_failed group=%s attempt=%d reason=%r", name, attempt + 1, error.remark
                )
                if error.code == ResponseCode.CONTROLLER_NOT_LEADER:
                    return
                continue
            # An earlier attempt, whose answer was lost, may have elected the master that exists.
            is_new = outcome.code == ResponseCode.SUCCESS or attempt > 0
            group = outcome.group
            if is_new and group is not None:
                peer_lines.info(
                    logger, "", "event=master_elected group=%s master=%s addr=%s master_epoch=%d",
                    name, group.master_id, group.address_of(group.master_id), group.master_epoch,
                )  # fmt: skip
                self.announce(group)
                return
            peer_lines.warning(
                logger, "", "event=no_master_elected group=%s code=%d reason=%r", name, outcome.code, outcome.remark
            )
            if group is not None or not self._service.has_leases(name):
                return
            # A replica may have been too busy to answer.
            await asyncio.sleep(_RETRY_S)

    def _start_notice(self, address: str, group: Group) -> None:
        before = self._notifying.get(address)
        if before is not None:
            if before[0] > group.master_epoch:
                return
            before[1].cancel()
        task = asyncio.get_running_loop().create_task(self._notify(address, group))
        entry = (group.master_epoch, task)
        self._notifying[address] = entry

        def forget(_: asyncio.Task[None]) -> None:
            if self._notifying.get(address) is entry:
                del self._notifying[address]

        task.add_done_callback(forget)

    async def _notify(self, address: str, group: Group) -> None:
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=group.address_of(group.master_id),
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.sync_state_set_epoch,
            master_broker_id=group.master_id,
        )
        body = dumps(SyncStateSet(list(group.sync_state_set), group.sync_state_set_epoch))
        try:
            await self._client.notify(address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)
        except ClientError as error:
            # The broker asks every syncBrokerMetadataPeriod.
            peer_lines.warning(
                logger, address, "event=notify_failed addr=%s group=%s cause=%r", address, group.name, str(error)
            )
