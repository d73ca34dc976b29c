"""Which clients subscribe each lite topic by name.  Pure.

Most lite topics have one subscriber, and there may be hundreds of thousands of them: such an entry is the client
itself.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.lite.subscriptions import LiteClient

# Clients of a group, in the order in which they are chosen.
Members = OrderedDict["LiteClient", None]
NOBODY: Final[Members] = OrderedDict()


class Subscribers:
    """Light queue -> group -> its clients."""

    def __init__(self) -> None:
        self._only: dict[str, LiteClient] = {}
        self._several: dict[str, dict[str, Members]] = {}

    def add(self, queue: str, client: "LiteClient") -> None:
        """Add a client."""
        groups = self._several.get(queue)
        if groups is None:
            only = self._only.setdefault(queue, client)
            if only is client:
                return
            groups = self._several[queue] = {only.key.group: OrderedDict({only: None})}
            del self._only[queue]
        groups.setdefault(client.key.group, OrderedDict())[client] = None

    def remove(self, queue: str, client: "LiteClient") -> None:
        """Remove a client that was added."""
        groups = self._several.get(queue)
        if groups is None:
            del self._only[queue]
            return
        members = groups[client.key.group]
        del members[client]
        if not members:
            del groups[client.key.group]
        rest = [one for members in groups.values() for one in members] if len(groups) == 1 else []
        if len(rest) == 1:
            del self._several[queue]
            self._only[queue] = rest[0]

    def of_group(self, queue: str, group: str) -> Members:
        """Return the clients of a group that subscribe `queue`."""
        only = self._only.get(queue)
        if only is not None:
            return OrderedDict({only: None}) if only.key.group == group else NOBODY
        return self._several.get(queue, {}).get(group, NOBODY)

    def groups(self, queue: str) -> Iterator[tuple[str, Members]]:
        """Iterate over the groups with clients that subscribe `queue`."""
        only = self._only.get(queue)
        if only is not None:
            return iter([(only.key.group, OrderedDict({only: None}))])
        return iter(self._several.get(queue, {}).items())
