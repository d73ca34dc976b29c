"""One master's epoch: who counts for acknowledgements, and what the controllers are told about it.

The controllers know in how many replicas an acknowledged message is.  A master that wants to wait for fewer asks them
first.  One that waits for more tells them once older messages are on as many.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.controller.controllers import ControllerRefused, Controllers
from broker.controller.sync_set import Ids, SyncSet, copies_needed
from broker.controller.tenure import SyncState, Tenure
from broker.periodic import pause
from sprocket.common.errors import ClientError, ProtocolError, StoreError
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

# How often slaves that are newly in sync are looked for.
_LOOK_S: Final = 0.1
# A set is asked for again after this time, whatever the reason.
_RETRY_S: Final = 1.0
# Limit on the wait for slaves that have what may be acknowledged.
_SETTLE_S: Final = 3.0
_SETTLE_STEP_S: Final = 0.02
ALL_IN_SYNC: Final = 0


class Leadership:
    """Leadership of one broker in the epoch of `tenure`.

    `own_role` is brokerRole of its file.  `may_propose` returns whether the lease is held; `look` makes the broker ask
    the controllers for the group.
    """

    def __init__(
        self,
        tenure: Tenure,
        config: LiveConfig,
        own_role: BrokerRole,
        log_end: Callable[[], int],
        slaves: SyncState,
        controllers: Controllers,
        now_s: Callable[[], float],
        *,
        may_propose: Callable[[], bool],
        look: Callable[[], None],
    ) -> None:
        self._tenure = tenure
        self._config = config
        self._log_end = log_end
        self._slaves = slaves
        self._controllers = controllers
        self._now_s = now_s
        self._may_propose = may_propose
        self._look = look
        self._is_sync = leads_as_sync_master(config, own_role)
        self._set = SyncSet(tenure.master_id, tenure.sync_state_set, tenure.sync_state_set_epoch)
        self._told = self._rule()
        self._agreed: int | None = None
        self._looked_s = now_s()
        self._task: asyncio.Task[None] | None = None
        self._count()

    @property
    def epoch(self) -> int:
        """The master epoch."""
        return self._tenure.master_epoch

    @property
    def sync_state_set(self) -> Ids:
        """The set that controllers decided last, as far as this master knows."""
        return self._set.decided

    def start(self) -> None:
        """Begin to keep the set up to date."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def stop(self) -> None:
        """Propose nothing any more."""
        if self._task is not None:
            self._task.cancel()

    def learn(self, decided: Ids, epoch: int) -> None:
        """Take over the set that controllers decided."""
        before = self._set.decided
        if self._set.learn(decided, epoch):
            logger.info("event=sync_state_set set=%s was=%s epoch=%d", sorted(decided), sorted(before), epoch)
            self._count()

    # In how many replicas an acknowledged message is

    def told_acks(self) -> int:
        """Return what the controllers are told now; 0: in all of the set."""
        rule = self._rule()
        if rule != self._told and not self._is_raised(rule):
            self._told = rule
        return self._told

    def agreed(self, acks: int) -> None:
        """Note that the controllers know that number, so that this master may wait for no more."""
        if acks != self._agreed:
            logger.info("event=required_acks agreed=%d was=%s", acks, self._agreed)
            self._agreed = acks
            self._slaves.require(acks)

    def _rule(self) -> int:
        return required_acks(self._config, is_sync=self._is_sync)

    def _is_raised(self, rule: int) -> bool:
        agreed = self._agreed
        return agreed is not None and agreed != ALL_IN_SYNC and (rule == ALL_IN_SYNC or rule > agreed)

    async def _raise(self) -> None:
        """Tell the controllers of a higher number, once older messages are on as many replicas."""
        rule = self._rule()
        if rule != self._told and self._is_raised(rule) and await self._settled(self._set.decided, rule):
            self._told = rule

    # The set

    async def _keep(self) -> None:
        while True:
            await pause(_LOOK_S)
            try:
                await self._raise()
                if not await self._change():
                    await pause(_RETRY_S)
            except StoreError:
                continue  # the store is closed, because the role changes

    async def _change(self) -> bool:
        """Ask for another set if there should be one.  Return whether nothing was refused."""
        if not self._may_propose():
            return True
        may_shrink = self._now_s() - self._looked_s >= self._config.broker.check_sync_state_set_period / 1000
        if may_shrink:
            self._looked_s = self._now_s()
        wanted = self._set.wanted(self._slaves.in_sync(), may_shrink=may_shrink)
        if wanted is None:
            return True
        was_asked = self._set.is_asked(wanted)
        self._set.ask(wanted)
        self._count()
        try:
            if not await self._settled(wanted, self._told):
                raise ControllerRefused(ResponseCode.SYSTEM_BUSY, f"slaves of {sorted(wanted)} lag")
            answer = await self._controllers.alter(self._tenure, wanted, self._set.epoch)
        except ControllerRefused as error:
            if not was_asked:  # an earlier request may still be carried out
                self._set.withdraw(wanted)
                self._count()
            logger.warning("event=sync_state_set_refused wanted=%s reason=%r", sorted(wanted), str(error))
        except (ClientError, ProtocolError) as error:
            logger.warning("event=sync_state_set_unknown wanted=%s reason=%r", sorted(wanted), str(error))
        else:
            self.learn(frozenset(answer.sync_state_set), answer.sync_state_set_epoch)
            return True
        self._look()
        return False

    def _count(self) -> None:
        counting = self._set.counting
        self._slaves.count_only(counting.counts, counting.may_lead)

    async def _settled(self, members: Ids, acks: int) -> bool:
        """Wait until as many of `members` as needed have what the log holds now."""
        end, until_s = self._log_end(), self._now_s() + _SETTLE_S
        needed = copies_needed(members, acks)
        while 1 + len(self._slaves.holding(end) & members) < needed:
            if self._now_s() >= until_s or not self._may_propose():
                return False
            await pause(_SETTLE_STEP_S)
        return True


def leads_as_sync_master(config: LiveConfig, own_role: BrokerRole) -> bool:
    """Return whether a master waits for slaves: its file says so, or asks for more than one replica."""
    store = config.store
    return own_role is BrokerRole.SYNC_MASTER or store.in_sync_replicas > 1 or store.all_ack_in_sync_state_set


def required_acks(config: LiveConfig, *, is_sync: bool) -> int:
    """Return in how many replicas, with the master, an acknowledged message is; 0: in the whole sync-state set.

    Never more than `ha.replicas.Replicas` waits for.
    """
    store = config.store
    if not is_sync:
        return 1
    if store.all_ack_in_sync_state_set:
        return ALL_IN_SYNC
    if store.enable_auto_in_sync_replicas:
        return max(1, store.min_in_sync_replicas)
    return max(2, store.in_sync_replicas)
