"""The wait of a SYNC_MASTER with an empty store for a slave that may hold the only copy.

The store of a new broker is empty, and so is that of a broker that lost its disk.  A slave with data sends its log and
its tables.  The master starts without data only if no slave can have any:

- Every other member of the group that name servers know has an empty log.
- Name servers know no other member, and none connected within haTailRecoveryWait.

It waits on, and logs why, while name servers know a member that has not connected, or while no name server answers.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final

from sprocket.remoting.addresses import numeric_host

logger = logging.getLogger(__name__)

ASK_S: Final = 0.5
_ADVICE: Final = (
    "this store is empty, and that member may hold the only copy: start it, or let it reach haListenPort; if its data"
    " is not wanted, stop it for good; haTailRecoveryWait = 0 starts without it and recovers nothing"
)

# Other members of the group: broker id -> address.  None if no name server answers.
AskMembers = Callable[[], Awaitable[Mapping[int, str] | None]]


async def no_members() -> Mapping[int, str]:
    """Return no members: for a broker without name servers."""
    return {}


class EmptyStart:
    """The wait of one start.  `begin(reason)` is called when the master may start without data."""

    def __init__(self, own_id: int, wait_ms: int, begin: Callable[[str], None]) -> None:
        self._own_id = own_id
        self._wait_ms = wait_ms
        self._begin = begin
        # Ids of slaves with an empty log; the host of a slave with the plain protocol, which reports no id.
        self._empty: set[Hashable] = set()
        self._said = ""

    def slave_is_empty(self, name: Hashable) -> None:
        """Note that a slave is empty as well."""
        self._empty.add((numeric_host(name) or name) if isinstance(name, str) else name)

    def members_known(
        self, members: Mapping[int, str] | None, waited_ms: float, hosts: Mapping[int, frozenset[str]]
    ) -> None:
        """Start, or log why not, given the members that name servers know after `waited_ms`.

        `hosts` has the IP addresses of each member, which may be registered by a host name.
        """
        if members is None:
            self._say_wait("no name server answers", "a name server must answer whether this group has other members")
            return
        others = {number: address for number, address in members.items() if number != self._own_id}
        absent = {number: address for number, address in others.items() if not self._is_empty(number, hosts)}
        if not absent and self._empty:
            self._begin("the store is empty, and so is every slave's")
        elif not absent and waited_ms >= self._wait_ms:
            self._begin("the store is empty, and no other member of the group is known")
        elif absent and waited_ms >= self._wait_ms:
            self._say_wait(f"members that have not connected: {absent}", _ADVICE)

    def _is_empty(self, number: int, hosts: Mapping[int, frozenset[str]]) -> bool:
        return number in self._empty or not self._empty.isdisjoint(hosts.get(number, ()))

    def _say_wait(self, reason: str, note: str) -> None:
        """Log a reason once."""
        if reason != self._said:
            self._said = reason
            logger.error("event=empty_master_waits reason=%r note=%r", reason, note)
