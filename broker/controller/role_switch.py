"""The broker's role as controllers decide it.

A change ends the whole term of one role and begins that of the other, see `broker.term`.  Following another master
needs no change.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from broker.appointment import Appointment
from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.controller.leadership import leads_as_sync_master
from broker.controller.replica import Epochs
from broker.controller.tenure import Tenure
from ha.epochs.epoch_history import Epoch
from ha.lease import Lease

logger = logging.getLogger(__name__)


class BrokerRoleSwitch:
    """`RoleSwitch` of one broker.  Lives in the event loop's thread.

    `present` returns the appointment of the present term, `change` ends that term and begins the next one, `follow`
    changes the master that a slave follows, and `fence` lets the present term append nothing more.

    With ASYNC_MASTER in its file, a broker that leads acknowledges at once, unless inSyncReplicas or
    allAckInSyncStateSet ask for slaves: in RocketMQ's controller mode these two keys alone decide.
    Source: RocketMQ 5.3.3, `ReplicasManager.changeToMaster`, `changeToSlave`.
    """

    def __init__(
        self,
        config: LiveConfig,
        lease: Lease,
        epochs: Epochs | None,
        *,
        present: Callable[[], Appointment],
        change: Callable[[Appointment], Coroutine[None, None, None]],
        follow: Callable[[Appointment], None],
        fence: Callable[[], None],
    ) -> None:
        self._config = config
        self._own_role = config.broker.broker_role
        self._lease = lease
        self._epochs = epochs
        self._present = present
        self._change = change
        self._follow = follow
        self._fence = fence
        self._broker_id = 0
        self._changing: asyncio.Task[None] | None = None

    def identify(self, broker_id: int) -> None:
        """Take the id that controllers assigned, for the next term as a slave."""
        self._broker_id = broker_id

    async def lead(self, tenure: Tenure) -> None:
        await self._changed()
        epoch = tenure.master_epoch
        if self._present().epoch != epoch:
            await self._to(Appointment(self._leading_role(), 0, epoch=epoch, begin=partial(self._begin, epoch)))

    def _leading_role(self) -> BrokerRole:
        is_sync = leads_as_sync_master(self._config, self._own_role)
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    def _begin(self, epoch: int, log_end: int) -> None:
        if self._epochs is not None:
            self._epochs.begin(Epoch(epoch, log_end))

    async def follow(self, tenure: Tenure) -> None:
        await self._serve_as_slave(tenure.master_address)

    async def rest(self) -> None:
        await self._serve_as_slave("")

    async def _serve_as_slave(self, master_address: str) -> None:
        self._lease.given_up()
        await self._changed()
        present, appointment = self._present(), Appointment(BrokerRole.SLAVE, self._broker_id, master_address)
        if present.role is appointment.role and present.broker_id == appointment.broker_id:
            if present != appointment:
                self._follow(appointment)
            return
        self._fence()
        await self._to(appointment)

    async def _changed(self) -> None:
        """Wait for a change whose caller was cancelled."""
        if self._changing is not None and not self._changing.done():
            await asyncio.wait([self._changing])

    async def _to(self, new: Appointment) -> None:
        logger.warning(
            "event=role_change from=%s to=%s id=%d master=%s epoch=%s", self._present().role.value, new.role.value,
            new.broker_id, new.master_address or "-", "-" if new.epoch is None else new.epoch,
        )  # fmt: skip
        # A task of its own: the caller may be cancelled, but half a change must not stay.
        self._changing = asyncio.get_running_loop().create_task(self._change(new))
        await asyncio.shield(self._changing)
