"""State that a broker of FastStream shares with its subscribers and publishers."""

from dataclasses import dataclass, field

from faststream._internal.configs import BrokerConfig
from faststream.exceptions import IncorrectState

from sprocket.client.connect import Connection


@dataclass(kw_only=True)
class SprocketBrokerConfig(BrokerConfig):
    """Configuration of a broker or router, and the broker's connection while it has one."""

    open_connection: Connection | None = field(default=None, init=False, repr=False)

    @property
    def connection(self) -> Connection:
        """The open connection.  Raises IncorrectState without one."""
        if self.open_connection is None:
            raise IncorrectState("the broker is not connected; start it, or use it inside `async with`")
        return self.open_connection
