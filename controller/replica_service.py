"""Requests about broker groups, carried out by the leader of the controllers.

A change goes through the log; a request that would change nothing, and every read, is answered from the leader's state
after a majority has confirmed the leader.  So all answers are linearizable.  RocketMQ answers from the leader's memory
unless processReadEvent is set, also when another controller leads by then.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from controller.config import ControllerConfig
from controller.consensus import ControllerConsensus
from controller.leases import Leases
from controller.live_brokers import BrokerKey, Heartbeat, LiveBrokers
from controller.metrics import ControllerCounts
from controller.state.commands import (
    AcceptTerms,
    AdoptGroup,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Outcome,
    Read,
    RegisterBroker,
    decode_outcome,
    encode_command,
)
from controller.state.group import Group
from controller.state.machine import ControllerMachine
from ha.raft.consensus import ConsensusBusyError, ConsensusError, NotLeaderError, OutcomeUnknownError
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

# Brokers and tools wait 3 s for a response.
TIMEOUT_MS: Final = 2_500
# Brokers whose refused heartbeats are remembered.
_MAX_REFUSED: Final = 1_000


class ReplicaService:
    """State and consensus of one controller.  Every method raises RequestError, CONTROLLER_NOT_LEADER if it is not."""

    def __init__(
        self,
        machine: ControllerMachine,
        consensus: ControllerConsensus,
        live: LiveBrokers,
        settings: LiveSettings[ControllerConfig],
        now_ms: Callable[[], int],
        counts: ControllerCounts,
    ) -> None:
        self._machine = machine
        self._consensus = consensus
        self._live = live
        self._settings = settings
        self.now_ms = now_ms  # by the monotonic clock
        # Returns a group as this controller has it, which may be old.
        self.known_group = machine.group
        self._counts = counts
        self._refused: set[tuple[BrokerKey, str]] = set()
        self.leases = Leases()
        # Groups in which an election runs: nobody gets a lease.
        self.electing: set[str] = set()
        # Groups with an election whose outcome is unknown: it may still happen.
        self._unknown: set[str] = set()

    @property
    def is_leader(self) -> bool:
        """Whether this controller leads, as far as it knows."""
        return self._consensus.is_leader

    @property
    def lease_ms(self) -> int:
        """Length of the leases that this controller grants."""
        return self._settings.current.master_lease_millis

    def has_leases(self, name: str) -> bool:
        """Return whether the master of a group asks for leases."""
        group = self.known_group(name)
        return group is not None and group.required_acks is not None

    def is_known_live(self, heartbeat: Heartbeat) -> bool:
        """Return whether earlier heartbeats of this broker came."""
        return self._live.is_live(heartbeat.key, self.now_ms())

    def headless(self) -> list[Group]:
        """Return the groups whose master is lost while another member is alive, as this controller knows them."""
        lost = self._live.headless(self._machine.groups(), self.now_ms())
        given_up = [
            group for name in self.leases.names if (group := self.known_group(name)) and self._has_resigned(group)
        ]
        return [*lost, *(group for group in given_up if group not in lost)]

    def silent_leaders(self) -> list[Heartbeat]:
        """Remove and return the masters with leases whose heartbeats do not come any more."""
        silent = []
        for name in self.leases.names:
            group, now_ms = self.known_group(name), self.now_ms()
            if group is None:
                self.leases.forget(name)
            elif group.master_id is not None:
                key = group.cluster, name, group.master_id
                if not self._live.is_live(key, now_ms) and (gone := self._live.forget(key)) is not None:
                    silent.append(gone)
        return silent

    def _has_resigned(self, group: Group) -> bool:
        """Return whether the group's master said, since it leads, that it does not lead any more."""
        return self._live.has_resigned(group) or self.leases.is_given_up(group.name, group.master_epoch)

    def leaves(self, heartbeat: Heartbeat) -> None:
        """Forget a broker that stops."""
        self.resigns(heartbeat)
        self._live.forget(heartbeat.key)

    def resigns(self, heartbeat: Heartbeat) -> bool:
        """Note that a broker gives up its lease.  Return whether it is the master of its group."""
        group = self.known_group(heartbeat.name)
        if group is None or not _is_master(group, heartbeat, heartbeat.resigned_epoch):
            return False
        self.leases.give_up(group.name, group.master_epoch)
        return True

    def beat(self, heartbeat: Heartbeat) -> str:
        """Note a heartbeat.  Return why it is refused, or the empty text."""
        refusal = self._live.beat(heartbeat, self.now_ms())
        sender = heartbeat.key, heartbeat.address
        if not refusal:
            self._refused.discard(sender)
        elif sender not in self._refused and len(self._refused) < _MAX_REFUSED:
            # One line for each broker: it sends a heartbeat every second.
            self._refused.add(sender)
            peer_lines.warning(logger, heartbeat.address, "event=heartbeat_refused reason=%r", refusal)
        return refusal

    async def alter_sync_state_set(
        self, name: str, master_id: int | None, master_epoch: int, ids: Iterable[int], epoch: int
    ) -> Outcome:
        """Change the sync-state set of a group, as its master asks."""
        group = self.known_group(name)
        return await self._carry_out(
            AlterSyncStateSet(
                name=name,
                master_id=master_id,
                master_epoch=master_epoch,
                sync_state_set=tuple(ids),
                sync_state_set_epoch=epoch,
                live=() if group is None else self._live.live_ids(group, self.now_ms()),
            )
        )

    async def elect_master(self, name: str, cluster: str, broker_id: int | None, *, is_designated: bool) -> Outcome:
        """Elect a master; `broker_id` is None if the controller itself asks."""
        group = self.known_group(name)
        outcome = await self._carry_out(
            ElectMaster(
                name=name,
                cluster=cluster,
                broker_id=broker_id,
                is_designated=is_designated,
                allows_unclean=self._settings.current.enable_elect_unclean_master,
                live=() if group is None else self._live.candidates(group, self.now_ms()),
                has_resigned=group is not None and self._has_resigned(group),
            )
        )
        self._counts.elected(cluster, name, outcome)
        return outcome

    async def elect_exactly(
        self,
        group: Group,
        answers: tuple[LiveReplica, ...],
        broker_id: int | None,
        *,
        is_designated: bool,
    ) -> Outcome:
        """Elect a master of a group without a lease, by the logs that its replicas have."""
        self._unknown.add(group.name)
        command = ElectMaster(
            name=group.name,
            cluster=group.cluster,
            broker_id=broker_id,
            is_designated=is_designated,
            allows_unclean=self._settings.current.enable_elect_unclean_master,
            live=answers,
            is_exact=True,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.sync_state_set_epoch,
            has_resigned=self._has_resigned(group),
        )
        outcome = await self._carry_out(command)
        self._unknown.discard(group.name)
        return outcome

    async def lease(self, heartbeat: Heartbeat, epoch: int, required_acks: int, arrived_ms: int) -> int:
        """Return the lease, in ms, that the master of `epoch` gets for a heartbeat; 0 if it gets none.

        A majority confirms after the heartbeat's arrival that this controller leads.
        """
        name, lease_ms = heartbeat.name, self._settings.current.master_lease_millis
        if not self._may_lead(heartbeat, epoch):
            return 0
        terms = AcceptTerms(
            name=name, master_id=heartbeat.broker_id, master_epoch=epoch, required_acks=required_acks, lease_ms=lease_ms
        )
        try:
            if name in self._unknown:
                # What this controller proposed before this is decided once this is.
                await self._proposed(Read(name=name))
                self._unknown.discard(name)
            outcome = await self._carry_out(terms)
        except RequestError:
            return 0
        if outcome.code != ResponseCode.SUCCESS or not self._may_lead(heartbeat, epoch) or name in self._unknown:
            return 0
        self.leases.granted(name, epoch, arrived_ms, lease_ms)
        return lease_ms

    def _may_lead(self, heartbeat: Heartbeat, epoch: int) -> bool:
        group = self.known_group(heartbeat.name)
        return (
            self.is_leader
            and group is not None
            and _is_master(group, heartbeat, epoch)
            and group.address_of(heartbeat.broker_id) == heartbeat.address
            and group.name not in self.electing
            and not self.leases.is_given_up(group.name, epoch)
        )

    def lease_wait_ms(self, group: Group) -> int:
        """Return how long the group's master may still acknowledge."""
        now_ms = self.now_ms()
        self.leases.lead(self._consensus.term, now_ms)
        return self.leases.wait_ms(group, now_ms)

    def begin_to_lead(self) -> None:
        """Note that this controller leads: from now on it waits for leases that another one granted."""
        self.leases.lead(self._consensus.term, self.now_ms())
        for group in self._machine.groups():
            if group.required_acks is not None:
                self.leases.watch(group.name)

    def live_replicas(self, group: Group) -> tuple[LiveReplica, ...]:
        """Return the members whose heartbeats come."""
        return self._live.live(group, self.now_ms())

    async def apply_broker_id(self, cluster: str, name: str, broker_id: int, check_code: str) -> Outcome:
        """Assign a broker id."""
        return await self._carry_out(
            ApplyBrokerId(cluster=cluster, name=name, broker_id=broker_id, check_code=check_code)
        )

    async def register_broker(self, cluster: str, name: str, broker_id: int, address: str) -> Outcome:
        """Note the address of a broker that has an id."""
        group = self.known_group(name)
        live = () if group is None else self._live.live(group, self.now_ms())
        return await self._carry_out(
            RegisterBroker(cluster=cluster, name=name, broker_id=broker_id, address=address, live=live)
        )

    async def clean_broker_data(
        self, cluster: str, name: str, broker_ids: Iterable[int], *, includes_living: bool
    ) -> Outcome:
        """Forget members of a group; without ids the group."""
        group = self.known_group(name)
        return await self._carry_out(
            CleanBrokerData(
                name=name,
                cluster=cluster,
                broker_ids=tuple(broker_ids),
                includes_living=includes_living,
                live=() if group is None else self._live.live_ids(group, self.now_ms()),
            )
        )

    async def forget_ghosts(self) -> None:
        """Forget the ids that brokers had before they lost their disks.  Raises RequestError."""
        for group in self._machine.groups():
            ghosts = group.ghosts(self._live.live_ids(group, self.now_ms()))
            if ghosts:
                logger.info("event=brokers_forgotten group=%s ids=%s reason=new_disk", group.name, list(ghosts))
                await self.clean_broker_data(group.cluster, group.name, ghosts, includes_living=False)

    async def adopt(self, command: AdoptGroup) -> Outcome:
        """Take over a group from other controllers."""
        return await self._carry_out(command)

    async def group(self, name: str) -> Group | None:
        """Return a group as it is now."""
        if self._settings.current.process_read_event:
            return decode_outcome(await self._proposed(Read(name=name))).group
        await self._confirm()
        return self.known_group(name)

    async def groups(self, names: Iterable[str]) -> list[Group]:
        """Return those of `names` that there are, as they are now."""
        if self._settings.current.process_read_event:
            await self._proposed(Read(name=""))
        await self._confirm()
        return [group for group in map(self._machine.group, names) if group is not None]

    async def forget_controller(self, controller_id: str) -> None:
        """Let a controller that lost its disk come back with an empty one."""
        try:
            await self._consensus.forget_member(controller_id, timeout_ms=TIMEOUT_MS)
        except ConsensusError as error:
            _refuse(error)

    def master_may_live(self, group: Group) -> bool:
        """Return whether the group's master is alive, or may be."""
        return not self._has_resigned(group) and self._live.master_may_live(group, self.now_ms())

    def is_live(self, group: Group, broker_id: int) -> bool:
        """Return whether this controller gets heartbeats of a member."""
        return self._live.is_live((group.cluster, group.name, broker_id), self.now_ms())

    async def _carry_out(self, command: Command) -> Outcome:
        if self._machine.unchanged_by(command) is not None:
            await self._confirm()
            # Another command may have been applied meanwhile.
            unchanged = self._machine.unchanged_by(command)
            if unchanged is not None:
                return unchanged
        outcome = decode_outcome(await self._proposed(command))
        if outcome.code == ResponseCode.SUCCESS:
            self._log_change(type(command).__name__, command.name)
        return outcome

    def _log_change(self, command: str, name: str) -> None:
        group = self.known_group(name)
        if group is None:
            peer_lines.info(logger, "", "event=group_forgotten group=%s", name)
            return
        peer_lines.info(
            logger, "",
            "event=group_changed command=%s group=%s brokers=%s master=%s master_epoch=%d sync_state_set=%s epoch=%d",
            command, name, list(group.broker_ids), group.master_id, group.master_epoch, list(group.sync_state_set),
            group.sync_state_set_epoch,
        )  # fmt: skip

    async def _proposed(self, command: Command) -> bytes:
        encoded, ended = encode_command(command), self._counts.proposing()
        try:
            result = await self._consensus.propose(encoded, timeout_ms=TIMEOUT_MS)
        except ConsensusError as error:
            ended("timeout" if isinstance(error, OutcomeUnknownError) else "failed")
            _refuse(error)
        ended("success")
        return result

    async def _confirm(self) -> None:
        try:
            await self._consensus.confirm_leadership(timeout_ms=TIMEOUT_MS)
        except ConsensusError as error:
            _refuse(error)


def _is_master(group: Group, heartbeat: Heartbeat, epoch: int) -> bool:
    is_there = (group.cluster, group.master_id) == (heartbeat.cluster, heartbeat.broker_id)
    return is_there and group.master_epoch == epoch


def _refuse(error: ConsensusError) -> NoReturn:
    if isinstance(error, NotLeaderError):
        remark = f"The controller is not in leader state: {error}"
        raise RequestError(ResponseCode.CONTROLLER_NOT_LEADER, remark) from None
    if isinstance(error, ConsensusBusyError):
        raise RequestError(ResponseCode.SYSTEM_BUSY, str(error)) from None
    if isinstance(error, OutcomeUnknownError):
        says = f"{error}; ask for the state before trying again"
        raise RequestError(ResponseCode.SYSTEM_ERROR, says) from None
    raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, str(error)) from None
