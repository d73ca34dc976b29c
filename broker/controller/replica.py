"""What a broker under controllers gives to the part that talks with them, and what it needs from others.

The composition point is `Broker(manage=...)` with enableControllerMode.  The broker calls `manage` once.  The service
that it returns lasts while the role changes, and its routes are part of every table.  When it starts, the broker is a
replica without a master.  It calls the methods of `switch` from a task of its own: a change ends the work on all
requests, also on the notice that asked for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.config.live_config import LiveConfig
from broker.controller.tenure import RoleSwitch, SyncState
from broker.service import Service
from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.lease import Lease
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.client import RemotingClient
from store.message_store import MessageStore


class Epochs(Protocol):
    """The durable history of the log's epochs."""

    def begin(self, epoch: Epoch) -> None:
        """Note that `epoch` begins; return once that is on the disk.  Raises `StoreError`."""


class ReplicaLog(Protocol):
    """This replica's log."""

    def epochs(self) -> EpochHistory:
        """Return which master wrote which part of it."""

    def end_offset(self) -> int:
        """Return its end.  Raises `StoreError` while the store is closed, because the role changes."""

    def confirm_offset(self) -> int:
        """Return how far consumers may read.  Raises as `end_offset` does."""


class StoreLog:
    """`ReplicaLog` of a broker's store: `store` returns that of the present role, `epochs` is the log's history."""

    def __init__(self, store: Callable[[], MessageStore], epochs: EpochFile | None) -> None:
        self._store = store
        self._epochs = epochs

    def epochs(self) -> EpochHistory:
        return EpochHistory() if self._epochs is None else self._epochs.history

    def end_offset(self) -> int:
        return self._store().wrote_offset

    def confirm_offset(self) -> int:
        return self._store().confirm_offset


@dataclass(frozen=True)
class ControlledReplica:
    """A replica under controllers, in the event loop's thread.

    `lease` is counted in the seconds of `lease_now`.  `sync_state` returns the slaves of the present role.
    `on_newer_epoch` are listeners for an epoch that a slave knows.  `new_client` returns a client that signs as the
    broker does; its owner closes it.  `fail` ends the process.
    """

    config: LiveConfig
    clock: Clock
    lease: Lease
    lease_now: Callable[[], float]
    switch: RoleSwitch
    log: ReplicaLog
    sync_state: Callable[[], SyncState]
    on_newer_epoch: list[Callable[[int], None]]
    new_client: Callable[[], RemotingClient]
    fail: Callable[[SprocketError], None]


Manage = Callable[[ControlledReplica], Service]
