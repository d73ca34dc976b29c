"""What a broker is in its group: its role, its id there, and the master that it follows."""

from collections.abc import Callable
from dataclasses import dataclass

from broker.config.broker_config import BrokerRole


@dataclass(frozen=True)
class Appointment:
    """Role of one term.  A file of its own, because the broker and its `RoleSwitch` share it.

    `begin` gets the log's end before anything is appended, and raises `StoreError`.
    """

    role: BrokerRole
    broker_id: int
    master_address: str = ""  # for requests; empty for none, or while name servers tell it
    epoch: int | None = None  # of a master that controllers elected
    begin: Callable[[int], None] | None = None

    @classmethod
    def resting(cls, broker_id: int) -> "Appointment":
        """Return the appointment of a replica without a master."""
        return cls(BrokerRole.SLAVE, broker_id)
