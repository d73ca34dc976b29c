"""What a broker is to the others of its name: the master, a slave, or a slave that acts for its lost master.

Two questions follow from it, and they are asked everywhere.  Does it take messages of its own?  Only a master does.
Does it do what one replica alone may do (deliver what was delayed, revive what was popped, ask about transactions)?
A master does, and a slave that acts for it.
Source: RocketMQ 5.3.3, `BrokerController.changeSpecialServiceStatus`, `startService`.
"""

import logging
from collections.abc import Callable

from broker.config.broker_config import BrokerRole

logger = logging.getLogger(__name__)


class Role:
    """Lives in the event loop's thread.  `on_change` is called after each change of `serves_group`."""

    def __init__(self, configured: BrokerRole) -> None:
        self.kind = configured
        self._is_acting = False
        self._is_handing_over = False
        self._is_recovering = False
        self._is_hiding = False
        self._lacks_tables = False
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
        if not self.is_slave:
            return not self._is_recovering
        return self._is_acting and not self._is_handing_over

    @property
    def shows_log(self) -> bool:
        """Whether consumers may see what is in the log, as far as that is confirmed."""
        return not self._is_hiding

    @property
    def knows_offsets(self) -> bool:
        """Whether consumers may be told where their groups and the queues are."""
        return not self._lacks_tables

    def recover(self, is_recovering: bool, *, hides_log: bool = False, lacks_tables: bool = False) -> None:
        """A master takes nothing until it knows whether a slave has more of its log, see `ha.tail_recovery`.

        With `hides_log` consumers see nothing of it either.  With `lacks_tables` they learn no offset: a group would
        begin at 0 and commit that.
        """
        self._is_recovering, self._is_hiding = is_recovering, is_recovering and hides_log
        self._lacks_tables = is_recovering and lacks_tables
        self._changed()

    def hand_over(self) -> None:
        """The master is about to take over: do no more of its work, answer as before."""
        if self._is_acting:
            self._is_handing_over = True
            self._changed()

    def act(self, is_acting: bool) -> None:
        """A slave begins to act for its master, or ends it; nothing for a master."""
        if not self.is_slave or (is_acting == self._is_acting and not self._is_handing_over):
            return
        self._is_acting = is_acting
        self._is_handing_over = False
        self._changed()

    def _changed(self) -> None:
        logger.warning(
            "event=role_changed acting=%s handing_over=%s recovering=%s", self._is_acting, self._is_handing_over,
            self._is_recovering,
        )  # fmt: skip
        for listener in self.on_change:
            listener()
