"""What a broker is to the others of its name: the master, a slave, or a slave that acts for its lost master.

Two questions follow from it, and they are asked everywhere.  Does it take messages of its own?  Only a master does.
Does it do what one replica alone may do (deliver what was delayed, revive what was popped, ask about transactions)?
A master does, and a slave that acts for it.
Source: RocketMQ 5.3.3, `BrokerController.changeSpecialServiceStatus`, `startService`.
"""

import logging
from collections.abc import Callable

from broker.config import BrokerRole

logger = logging.getLogger(__name__)


class Role:
    """Lives in the event loop's thread.  `on_change` is called after each change of `serves_group`."""

    def __init__(self, configured: BrokerRole) -> None:
        self.kind = configured
        self._is_acting = False
        self.on_change: list[Callable[[], None]] = []

    @property
    def is_slave(self) -> bool:
        """Whether its log is a copy of a master's: it appends nothing to it."""
        return self.kind is BrokerRole.SLAVE

    @property
    def is_acting(self) -> bool:
        """Whether it is a slave that acts for its master."""
        return self._is_acting

    @property
    def serves_group(self) -> bool:
        """Whether it does the work that one replica alone may do."""
        return not self.is_slave or self._is_acting

    def act(self, is_acting: bool) -> None:
        """A slave begins to act for its master, or ends it; nothing for a master."""
        if not self.is_slave or is_acting == self._is_acting:
            return
        self._is_acting = is_acting
        logger.warning("event=acting_master acting=%s", is_acting)
        for listener in self.on_change:
            listener()
