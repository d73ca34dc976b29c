"""The address at which the master of this broker's group answers requests, as far as this broker knows it.

What follows the master notes it; what registers the broker and what asks the master read it.
"""

from broker.role import Role


class MasterAddress:
    """Address of one group's master.  Lives in the event loop's thread."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._address = ""

    def __str__(self) -> str:
        """Return ``host:port``; empty while the address is unknown."""
        return self._address

    @property
    def is_missing(self) -> bool:
        """Whether this is a slave that does not know its master's address."""
        return self._role.is_slave and not self._address

    def note(self, address: str) -> None:
        """Take `address` for the master's; empty if the master is lost."""
        self._address = address
