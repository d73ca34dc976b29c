"""Decides how long a SYNC_MASTER with an empty store waits for a slave that may hold the only copy.

An empty store is that of a new broker, or of one that lost its disk.  Its slaves tell: one with data gives its log and
its tables.  The master begins without data only if no slave can have any:

- Every other member of the group that name servers know has an empty log.
- Name servers know no other member, and none came within haTailRecoveryWait.

It waits on, and says so, while name servers know a member that has not come, or while none of them answers.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final

from sprocket.remoting.client import split_address

logger = logging.getLogger(__name__)

ASK_S: Final = 0.5
_ADVICE: Final = (
    "this store is empty, and that member may hold the only copy: start it, or let it reach haListenPort; if its data"
    " is not wanted, stop it for good; haTailRecoveryWait = 0 starts without it and recovers nothing"
)

# Other members of the group: broker id -> address.  None if no name server answers.
AskMembers = Callable[[], Awaitable[Mapping[int, str] | None]]


async def nobody() -> Mapping[int, str]:
    """Where there are no name servers."""
    return {}


class EmptyStart:
    """The wait of one start.  `begin(reason)` is called when the master may begin without data."""

    def __init__(self, own_id: int, wait_ms: int, begin: Callable[[str], None]) -> None:
        self._own_id = own_id
        self._wait_ms = wait_ms
        self._begin = begin
        # Ids of slaves whose log is empty; of those of the plain protocol, which do not say their id, the host.
        self._empty: set[Hashable] = set()
        self._said = ""

    def slave_is_empty(self, name: Hashable) -> None:
        """Note that a slave has nothing either."""
        self._empty.add(name)

    def members_known(self, members: Mapping[int, str] | None, waited_ms: float) -> None:
        """Begin, or say why not, given what name servers know after `waited_ms` of waiting."""
        if members is None:
            self._say_wait("no name server answers", "a name server has to tell whether this group has other members")
            return
        others = {number: address for number, address in members.items() if number != self._own_id}
        absent = {number: address for number, address in others.items() if not self._is_empty(number, address)}
        if not absent and self._empty:
            self._begin("the store is empty, and so is that of each slave")
        elif not absent and waited_ms >= self._wait_ms:
            self._begin("the store is empty, and no other member of the group is known")
        elif absent and waited_ms >= self._wait_ms:
            self._say_wait(f"members that have not shown their log: {absent}", _ADVICE)

    def _is_empty(self, number: int, address: str) -> bool:
        try:
            host, _ = split_address(address)
        except ValueError:
            host = ""
        return number in self._empty or host in self._empty

    def _say_wait(self, reason: str, note: str) -> None:
        """Once for each reason."""
        if reason != self._said:
            self._said = reason
            logger.error("event=empty_master_waits reason=%r note=%r", reason, note)
