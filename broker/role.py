"""Role of a broker in its group: the master, a slave, or a slave that acts for its lost master.

Two questions follow from the role.  Does the broker append messages of its own?  Only a master does.  Does it run the
services that only one replica may run (deliver delayed messages, revive popped ones, check transactions)?  A master
does, and a slave that acts for it.
Source: RocketMQ 5.3.3, `BrokerController.changeSpecialServiceStatus`, `startService`.
"""

import logging
from collections.abc import Callable

from broker.config.broker_config import BrokerRole

logger = logging.getLogger(__name__)


class Role:
    """Role of one broker, in the event loop's thread.  `on_change` is called after each change of `serves_group`."""

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
        """Whether the log is a copy of a master's, to which this broker appends nothing of its own."""
        return self.kind is BrokerRole.SLAVE

    @property
    def is_acting(self) -> bool:
        """Whether this is a slave that acts for its master."""
        return self._is_acting

    @property
    def serves_group(self) -> bool:
        """Whether this broker runs the services that only one replica may run."""
        if not self.is_slave:
            return not self._is_recovering
        return self._is_acting and not self._is_handing_over

    @property
    def shows_log(self) -> bool:
        """Whether consumers may read the log, as far as it is confirmed."""
        return not self._is_hiding

    @property
    def knows_offsets(self) -> bool:
        """Whether consumers may be told the offsets of groups and queues."""
        return not self._lacks_tables

    def recover(self, is_recovering: bool, *, hides_log: bool = False, lacks_tables: bool = False) -> None:
        """Begin or end the wait in which a master accepts nothing, because a slave may have more of its log.

        With `hides_log` consumers read nothing meanwhile.  With `lacks_tables` they are told no offset: a group would
        start at 0 and commit that.  See `ha.tail_recovery`.
        """
        self._is_recovering, self._is_hiding = is_recovering, is_recovering and hides_log
        self._lacks_tables = is_recovering and lacks_tables
        self._changed()

    def hand_over(self) -> None:
        """Stop acting, because the master is about to take over; go on answering reads."""
        if self._is_acting:
            self._is_handing_over = True
            self._changed()

    def act(self, is_acting: bool) -> None:
        """Begin or end to act for the master; no effect on a master."""
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
