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
from controller.live_brokers import BrokerKey, Heartbeat, LiveBrokers
from controller.state.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    Outcome,
    Read,
    RegisterBroker,
    decode_outcome,
    encode_command,
)
from controller.state.group import Group
from controller.state.machine import ControllerMachine
from ha.raft.consensus import ConsensusBusyError, ConsensusError, NotLeaderError, OutcomeUnknownError
from sprocket.common.errors import RequestError
from sprocket.common.live_settings import LiveSettings
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
    ) -> None:
        self._machine = machine
        self._consensus = consensus
        self._live = live
        self._settings = settings
        self._now_ms = now_ms
        self._refused: set[tuple[BrokerKey, str]] = set()

    @property
    def is_leader(self) -> bool:
        """Whether this controller leads, as far as it knows."""
        return self._consensus.is_leader

    def known_group(self, name: str) -> Group | None:
        """Return a group as this controller has it, which may be old."""
        return self._machine.group(name)

    def headless(self) -> list[Group]:
        """Return the groups whose master is lost while another member is alive, as this controller knows them."""
        return self._live.headless(self._machine.groups(), self._now_ms())

    def beat(self, heartbeat: Heartbeat) -> str:
        """Note a heartbeat.  Return why it is refused, or the empty text."""
        refusal = self._live.beat(heartbeat, self._now_ms())
        sender = heartbeat.key, heartbeat.address
        if not refusal:
            self._refused.discard(sender)
        elif sender not in self._refused and len(self._refused) < _MAX_REFUSED:
            # One line for each broker: it sends a heartbeat every second.
            self._refused.add(sender)
            logger.warning("event=heartbeat_refused reason=%r", refusal)
        return refusal

    async def alter_sync_state_set(
        self, name: str, master_id: int | None, master_epoch: int, ids: Iterable[int], epoch: int
    ) -> Outcome:
        """Change the sync-state set of a group, as its master asks."""
        group = self._machine.group(name)
        return await self._carry_out(
            AlterSyncStateSet(
                name=name,
                master_id=master_id,
                master_epoch=master_epoch,
                sync_state_set=tuple(ids),
                sync_state_set_epoch=epoch,
                live=() if group is None else self._live.live_ids(group, self._now_ms()),
            )
        )

    async def elect_master(self, name: str, cluster: str, broker_id: int | None, *, is_designated: bool) -> Outcome:
        """Elect a master; `broker_id` is None if the controller itself asks."""
        group = self._machine.group(name)
        return await self._carry_out(
            ElectMaster(
                name=name,
                cluster=cluster,
                broker_id=broker_id,
                is_designated=is_designated,
                allows_unclean=self._settings.current.enable_elect_unclean_master,
                live=() if group is None else self._live.candidates(group, self._now_ms()),
            )
        )

    async def apply_broker_id(self, cluster: str, name: str, broker_id: int, check_code: str) -> Outcome:
        """Assign a broker id."""
        return await self._carry_out(
            ApplyBrokerId(cluster=cluster, name=name, broker_id=broker_id, check_code=check_code)
        )

    async def register_broker(self, cluster: str, name: str, broker_id: int, address: str) -> Outcome:
        """Note the address of a broker that has an id."""
        group = self._machine.group(name)
        live = () if group is None else self._live.live(group, self._now_ms())
        return await self._carry_out(
            RegisterBroker(cluster=cluster, name=name, broker_id=broker_id, address=address, live=live)
        )

    async def clean_broker_data(
        self, cluster: str, name: str, broker_ids: Iterable[int], *, includes_living: bool
    ) -> Outcome:
        """Forget members of a group; without ids the group."""
        group = self._machine.group(name)
        return await self._carry_out(
            CleanBrokerData(
                name=name,
                cluster=cluster,
                broker_ids=tuple(broker_ids),
                includes_living=includes_living,
                live=() if group is None else self._live.live_ids(group, self._now_ms()),
            )
        )

    async def group(self, name: str) -> Group | None:
        """Return a group as it is now."""
        if self._settings.current.process_read_event:
            return decode_outcome(await self._proposed(Read(name=name))).group
        await self._confirm()
        return self._machine.group(name)

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
        return self._live.master_may_live(group, self._now_ms())

    def is_live(self, group: Group, broker_id: int) -> bool:
        """Return whether this controller gets heartbeats of a member."""
        return self._live.is_live((group.cluster, group.name, broker_id), self._now_ms())

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
        group = self._machine.group(name)
        if group is None:
            logger.info("event=group_forgotten group=%s", name)
            return
        logger.info(
            "event=group_changed command=%s group=%s brokers=%s master=%s master_epoch=%d sync_state_set=%s epoch=%d",
            command, name, list(group.broker_ids), group.master_id, group.master_epoch,
            list(group.sync_state_set), group.sync_state_set_epoch,
        )  # fmt: skip

    async def _proposed(self, command: Command) -> bytes:
        encoded = encode_command(command)
        try:
            return await self._consensus.propose(encoded, timeout_ms=TIMEOUT_MS)
        except ConsensusError as error:
            _refuse(error)

    async def _confirm(self) -> None:
        try:
            await self._consensus.confirm_leadership(timeout_ms=TIMEOUT_MS)
        except ConsensusError as error:
            _refuse(error)


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
