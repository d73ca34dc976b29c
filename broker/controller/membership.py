"""Membership of a broker in its group: its id, its role and its slaves, as controllers decide them.

A broker begins as a replica of nobody.  It gets an id, tells the controllers where it is, and sends heartbeats.  It
leads only in an epoch that began after it had registered: a master that starts again may have lost the end of its log,
so it resigns from its old epoch, and the controllers elect by the logs of all.  The newest epoch wins; changes of the
role come one after another.

A notice of a new master makes the broker ask the controllers; the broker does not trust the content of the notice.
RocketMQ's controllers grant no leases.  Under them a master leads until it learns a newer epoch, as in RocketMQ.
Source: RocketMQ 5.3.3, `ReplicasManager`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from broker.controller.addresses import parse_addresses
from broker.controller.controllers import ControllerRefused, Controllers, GroupInfo
from broker.controller.heartbeats import Heartbeats
from broker.controller.identity import IdentityFiles
from broker.controller.leadership import Leadership
from broker.controller.replica import ControlledReplica
from broker.controller.tenure import Tenure
from broker.periodic import pause
from broker.service import Service
from sprocket.common.errors import ClientError, ConfigError, ProtocolError, RequestError, SprocketError, StoreError
from sprocket.common.figures import Declared, Figure
from sprocket.remoting.bodies.controller import EpochEntry, EpochEntryCache
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, BrokerHeartbeatResponseHeader
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_RESOLVE_S: Final = 120.0
_MASTER_ID: Final = 0
_NO_EPOCH: Final = -1
# Notices come from anybody where there is no access control, and each doubt leaves a request without its answer.
_DOUBT_S: Final = 1.0


def join_group(replica: ControlledReplica) -> Service:
    """Return the part of a broker that talks with its controllers: a `broker.controller.replica.Manage`."""
    membership = Membership(replica)
    replica.on_newer_epoch.append(membership.newer_epoch)
    return membership


class Membership(Service):
    """Membership of one broker.  Lives in the event loop's thread."""

    def __init__(self, replica: ControlledReplica) -> None:
        self._replica = replica
        broker, store = replica.config.broker, replica.config.store
        path = broker.store_path_broker_identity or store.store_path_root_dir / "brokerIdentity"
        self._own_role = broker.broker_role
        self._files = IdentityFiles(Path(path), broker.broker_cluster_name, broker.broker_name)
        self.controllers = Controllers(
            replica.new_client, broker.broker_cluster_name, broker.broker_name,
            lambda: replica.config.broker.controller_addr, looks_up=broker.fetch_controller_addr_by_dns_lookup,
        )  # fmt: skip
        self._beats = Heartbeats(self.controllers, self._heartbeat, replica.lease_now, self._answered)
        self.broker_id = 0  # 0: the controllers have not assigned one yet
        # The group when this process registered: a tenure of that epoch is one of an earlier process.
        self._first_epoch: int | None = None
        self._newest: GroupInfo | None = None
        self._in_role = _NO_EPOCH  # epoch of the role that this broker has
        self._failed_epoch = _NO_EPOCH  # epoch in which it could not lead
        self._leadership: Leadership | None = None
        # Whether the controllers know leases; None until one has answered.
        self._has_leases: bool | None = None
        self._look = asyncio.Event()
        self._doubted_s = -_DOUBT_S
        self._is_leaving = False
        self._tasks: list[asyncio.Task[None]] = []

    # Service

    def routes(self) -> list[Route]:
        """Serve what controllers ask of a broker."""
        code, cluster = RequestCode, Resource.CLUSTER
        noticed = NotifyBrokerRoleChangedRequestHeader
        return [
            Route(code.NOTIFY_BROKER_ROLE_CHANGED, noticed, self.notice, cluster, Action.UPDATE),
            Route(code.GET_BROKER_EPOCH_CACHE, NoHeader, self.show_epochs, cluster, Action.GET),
        ]

    def figures(self) -> list[Declared]:
        """Return the figures; RocketMQ has none of these names."""
        lease, now_s = self._replica.lease, self._replica.lease_now
        return [
            Figure("controllerBrokerId", "id that the controllers assigned; 0: none yet", lambda: self.broker_id),
            Figure(
                "controllerMasterEpoch",
                "newest master epoch that this broker knows; -1 if none",
                lambda: _NO_EPOCH if self._newest is None else self._newest.master_epoch,
            ),
            Figure("controllerHoldsLease", "whether this broker may acknowledge", lambda: lease.is_held(now_s())),
            Figure(
                "controllerSyncStateSet",
                "replicas in the controllers' sync-state set, on the master; 0 on others",
                lambda: 0 if self._leadership is None else len(self._leadership.sync_state_set),
            ),
        ]

    def check(self) -> None:
        """Raise ConfigError for wrong addresses, and for a directory of another broker."""
        parse_addresses(self._replica.config.broker.controller_addr)
        self._files.check()
        self._files.assigned()

    def start(self) -> None:
        """Find the controllers, register, and take the role that they decide."""
        self._spawn(self._live())

    def stop(self) -> None:
        """Give up the lease, and tell the controllers that this broker stops."""
        self._is_leaving = True
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._stop_leading()
        self._beats.stop()
        if self.broker_id:
            self._spawn(self._leave())

    async def _leave(self) -> None:
        self._beats.beat()
        await self._beats.answers()
        await self.controllers.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            says = f"controller mode ended: {error}"
            logger.error("event=membership_failed reason=%r", says, exc_info=error)
            self._replica.fail(error if isinstance(error, SprocketError) else SprocketError(says))

    # What controllers ask

    def notice(self, request: Request[NotifyBrokerRoleChangedRequestHeader]) -> Response:
        """Ask the controllers at once whether there is a newer master."""
        self.newer_epoch(request.header.master_epoch)
        return Response()

    def newer_epoch(self, epoch: int | None) -> None:
        """Ask the controllers at once if `epoch`, which somebody else knows, is newer: there was an election.

        The controller that leads may be another one, too, because the machine of the old one stands still.
        """
        if self._newest is not None and epoch is not None and epoch <= self._newest.master_epoch:
            return
        now_s = self._replica.clock.monotonic()
        if now_s - self._doubted_s >= _DOUBT_S:
            self._doubted_s = now_s
            self.controllers.doubt_leader()
        self._look.set()

    def show_epochs(self, _: Request[NoHeader]) -> Response:
        """Return which master wrote which part of the log, and where the log ends."""
        broker, log = self._replica.config.broker, self._replica.log
        if self._first_epoch is None:
            raise RequestError(ResponseCode.SYSTEM_BUSY, "the broker has not registered with its controllers yet")
        epochs = log.epochs().epochs
        entries = [EpochEntry(one.number, one.start_offset) for one in epochs]
        for entry, following in pairwise(entries):
            entry.end_offset = following.start_offset
        broker_id = _MASTER_ID if self.is_leading else self.broker_id
        cache = EpochEntryCache(broker.broker_cluster_name, broker.broker_name, broker_id, entries, log.end_offset())
        return Response(body=dumps(cache))

    # Role

    @property
    def is_leading(self) -> bool:
        """Whether this broker has the master's role."""
        return self._leadership is not None

    async def _live(self) -> None:
        while not self.broker_id:
            try:
                await self.controllers.resolve()
                await self._join()
            except (ClientError, ProtocolError) as error:
                self.controllers.say_once(str(error))
                await pause(_RETRY_S)
        self._spawn(self._beats.run())
        self._spawn(self._resolve())
        self._spawn(self._find_leader())
        while True:
            self._look.clear()
            await self._synchronize()
            try:
                async with asyncio.timeout(self._replica.config.broker.sync_broker_metadata_period / 1000):
                    await self._look.wait()
            except TimeoutError:
                pass

    async def _find_leader(self) -> None:
        """Ask for the leader from time to time, so that a request rarely meets a controller that no longer leads."""
        while True:
            await pause(self._replica.config.broker.sync_controller_metadata_period / 1000)
            try:
                await self.controllers.find_leader()
            except (ClientError, ProtocolError) as error:
                self.controllers.say_once(str(error))

    async def _resolve(self) -> None:
        while True:
            await pause(_RESOLVE_S)
            try:
                await self.controllers.resolve()
            except ConfigError as error:
                self.controllers.say_once(str(error))

    async def _join(self) -> None:
        """Get an id, register, and see what the group's master is.  Raises ClientError or ProtocolError."""
        identity = self._files.assigned()
        if identity is None:
            pending = self._files.pending()
            if pending is None:
                code = f"{self._replica.config.broker.address};{self._replica.clock.wall_ms()}"
                pending = await asyncio.to_thread(self._files.apply_for, await self.controllers.next_id(), code)
            try:
                await self.controllers.apply_id(pending.broker_id, pending.check_code)
            except ControllerRefused:
                self._files.give_up()  # another broker was faster
                raise
            identity = await asyncio.to_thread(self._files.assign, pending)
            logger.info("event=broker_id_assigned id=%d", identity.broker_id)
        address = self._replica.config.broker.address
        try:
            await self.controllers.register(identity.broker_id, address)
        except ControllerRefused as error:
            if error.code != ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                raise
            # The controllers took this id for one of a lost disk, because another broker got this broker's address.
            await self.controllers.apply_id(identity.broker_id, f"{address};{self._replica.clock.wall_ms()}")
        found = await self.controllers.info()
        self._first_epoch = found.master_epoch
        self._newest = found
        self._replica.switch.identify(identity.broker_id)
        self.broker_id = identity.broker_id
        self._beats.beat()
        await self._beats.answers()

    async def _synchronize(self) -> None:
        """Ask the controllers for the group, and do what they decided."""
        try:
            found = await self.controllers.info()
            self._see(found)
            if found.master_id is None or self._resigned_epoch(found) is not None:
                found = await self.controllers.elect(self.broker_id)
                self._see(found)
        except ControllerRefused as error:
            self.controllers.say_once(str(error))
            if error.code in (
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            ):
                await self._register_again()
        except (ClientError, ProtocolError) as error:
            self.controllers.say_once(str(error))
        await self._take_role()

    async def _register_again(self) -> None:
        try:
            await self.controllers.register(self.broker_id, self._replica.config.broker.address)
        except (ClientError, ProtocolError) as error:
            self.controllers.say_once(str(error))

    def _see(self, found: GroupInfo) -> None:
        """Take over what the controllers decided, unless it is older than what is known."""
        newest = self._newest
        seen = found.master_epoch, found.sync_state_set_epoch
        if newest is not None and seen < (newest.master_epoch, newest.sync_state_set_epoch):
            return
        self._newest = found
        if self._leadership is not None:
            if found.master_epoch > self._leadership.epoch:
                self._stop_leading()
            else:
                self._leadership.learn(found.sync_state_set, found.sync_state_set_epoch)

    def _resigned_epoch(self, found: GroupInfo) -> int | None:
        """Return the epoch in which this broker is taken for the master but does not lead; None if there is none.

        RocketMQ's controllers do not know that: there a master goes on in its epoch after a start.
        """
        if found.master_id != self.broker_id or self._has_leases is False or self.is_leading:
            return None
        is_of_earlier_process = self._first_epoch is not None and found.master_epoch <= self._first_epoch
        return found.master_epoch if is_of_earlier_process or found.master_epoch == self._failed_epoch else None

    async def _take_role(self) -> None:
        """Become what the newest decision says, which may be another one by then."""
        while (found := self._newest) is not None and found.master_epoch > self._in_role:
            tenure = found.tenure
            epoch_before, self._in_role = self._in_role, found.master_epoch
            try:
                if tenure is None:
                    await self._replica.switch.rest()
                elif tenure.master_id != self.broker_id:
                    await self._replica.switch.follow(tenure)
                elif self._resigned_from_start(tenure):
                    await self._replica.switch.rest()
                else:
                    await self._lead(tenure)
            except StoreError as error:
                logger.error("event=role_not_taken master_epoch=%d reason=%r", found.master_epoch, str(error))
                if tenure is not None and tenure.master_id == self.broker_id:
                    self._failed_epoch = tenure.master_epoch
                else:
                    self._in_role = epoch_before
                    await pause(_RETRY_S)

    def _resigned_from_start(self, tenure: Tenure) -> bool:
        return self._has_leases is not False and tenure.master_epoch <= (self._first_epoch or 0)

    async def _lead(self, tenure: Tenure) -> None:
        replica = self._replica
        await replica.switch.lead(tenure)
        newest = self._newest
        if newest is not None and newest.master_epoch > tenure.master_epoch:
            return
        self._leadership = Leadership(
            tenure, replica.config, self._own_role, replica.log.end_offset, replica.sync_state(), self.controllers,
            replica.clock.monotonic, may_propose=self._may_propose, look=self._look.set,
        )  # fmt: skip
        if newest is not None:
            self._leadership.learn(newest.sync_state_set, newest.sync_state_set_epoch)
        self._leadership.start()
        if self._has_leases is False:
            logger.warning("event=no_leases epoch=%d reason='controllers of RocketMQ grant none'", tenure.master_epoch)
            replica.lease.granted(replica.lease_now(), float("inf"))
        self._beats.hurry()

    def _may_propose(self) -> bool:
        """Return whether changes of the sync-state set may be proposed: this broker leads, for all it knows."""
        return self._replica.lease.is_held(self._replica.lease_now())

    def _stop_leading(self) -> None:
        """Acknowledge nothing any more: there is a newer epoch."""
        leadership, self._leadership = self._leadership, None
        self._replica.lease.given_up()
        if leadership is not None:
            leadership.stop()

    # Heartbeats

    def _heartbeat(self) -> BrokerHeartbeatRequestHeader:
        broker, log = self._replica.config.broker, self._replica.log
        last = log.epochs().last
        header = BrokerHeartbeatRequestHeader(
            cluster_name=broker.broker_cluster_name,
            broker_addr=broker.address,
            broker_name=broker.broker_name,
            broker_id=self.broker_id,
            epoch=_NO_EPOCH if last is None else last.number,
            heartbeat_timeout_mills=broker.controller_heart_beat_timeout_mills,
            election_priority=broker.broker_election_priority,
        )
        with contextlib.suppress(StoreError):  # the store is closed while the role changes
            header.max_offset, header.confirm_offset = log.end_offset(), log.confirm_offset()
        if self._is_leaving:
            header.is_leaving = True
            if self._newest is not None and self._newest.master_id == self.broker_id:
                header.resigned_epoch = self._newest.master_epoch
        elif self._leadership is not None:
            header.lease_epoch, header.required_acks = self._leadership.epoch, self._leadership.told_acks()
        elif self._newest is not None:
            header.resigned_epoch = self._resigned_epoch(self._newest)
        return header

    def _answered(
        self, header: BrokerHeartbeatRequestHeader, sent_s: float, answer: BrokerHeartbeatResponseHeader
    ) -> None:
        if answer.knows_leases and not self._has_leases:
            if self._has_leases is False:
                self._replica.lease.given_up()  # it had no end; from now on the controllers grant leases
            self._has_leases = True
        elif self._has_leases is None:
            self._has_leases = False
        if answer.master_epoch is not None:
            self.newer_epoch(answer.master_epoch)
        leadership = self._leadership
        if leadership is None or self._is_leaving or answer.lease_millis is None or header.required_acks is None:
            return
        if header.lease_epoch == leadership.epoch:
            leadership.agreed(header.required_acks)
            self._replica.lease.granted(sent_s, answer.lease_millis / 1000)
