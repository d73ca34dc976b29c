"""Lag of groups in lite topics, kept from the first time that somebody asks for a group's: nobody else pays for it.

As in RocketMQ, a lite topic in which a group has no offset yet has no lag.
Source: RocketMQ 5.5.1, `LiteConsumerLagCalculator`, which searches the offsets of all groups at each request and
export.  With liteLagLatencyCollectEnable it notes the age of a lite topic when a pop leaves messages in it.
"""

from collections.abc import Generator, Iterable
from typing import Final

from broker.core import BrokerCore
from broker.lite.admission import LiteAdmission
from broker.lite.group_lag import GroupLag
from broker.lite.intervals import UNKNOWN
from broker.lite.lite_queues import LiteQueues
from broker.lite.order import LITE_QUEUE_ID
from sprocket.remoting.message.lite_topics import parent_and_lite

_STEP: Final = 64


class LiteLags:
    """Group -> its lag in the lite topics of its parent.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, admission: LiteAdmission, queues: LiteQueues) -> None:
        self._core = core
        self._admission = admission
        self._queues = queues
        self._by_parent: dict[str, dict[str, GroupLag]] = {}

    def of_group(self, parent: str, group: str) -> Generator[None, None, GroupLag]:
        """Return the lag of a group, which is kept from now on; until it is whole, all lite topics are read, in steps.

        So does everybody who asks meanwhile, because the first one may give up.
        """
        lag = self._by_parent.setdefault(parent, {}).setdefault(group, GroupLag())
        if lag.is_whole:
            return lag
        self._core.offsets.follow_light(self._moved)
        for number, queue in enumerate(self._queues.of_parent(parent), 1):
            self._look(lag, group, queue, UNKNOWN)
            if not number % _STEP:
                yield
        lag.has_all()
        return lag

    def rows(self, *, with_times: bool) -> Generator[None, None, list[tuple[str, str, int, int]]]:
        """Return group, parent, messages, and the store time, ms, of the oldest one; 0 without one or a wish.

        All groups with lite topics, in steps.
        """
        found = []
        bound = self._admission.groups_by_parent()
        for parent, groups in self._by_parent.items():
            for group in groups.keys() - set(bound.get(parent, ())):
                del groups[group]
        for parent, names in bound.items():
            for group in names:
                lag = yield from self.of_group(parent, group)
                oldest = (yield from self.oldest(lag, group, 1)) if with_times else []
                found.append((group, parent, lag.total, oldest[0][0] if oldest else 0))
        return found

    def oldest(self, lag: GroupLag, group: str, count: int) -> Generator[None, None, list[tuple[int, str]]]:
        """Return times and queues with the oldest messages that a group has not consumed."""
        return (yield from lag.oldest(count, lambda queue: self.time_of(group, queue)))

    def time_of(self, group: str, queue: str) -> int:
        """Return the store time, ms, of the first message that a group has not consumed; not positive without one."""
        committed = self._core.offsets.query(group, queue, LITE_QUEUE_ID)
        return self._core.store.store_time(queue, LITE_QUEUE_ID, committed)

    # What happens

    def arrived(self, queues: Iterable[str], now_ms: int) -> None:
        """Note messages in light queues of lite topics."""
        if self._by_parent:
            for queue in queues:
                self._changed(queue, None, now_ms)

    def forget(self, queue: str) -> None:
        """Forget a deleted lite topic."""
        self._changed(queue, None, UNKNOWN)

    def _moved(self, group: str, queue: str) -> None:
        self._changed(queue, group, UNKNOWN)

    def _changed(self, queue: str, group: str | None, since_ms: int) -> None:
        names = parent_and_lite(queue)
        groups = None if names is None else self._by_parent.get(names[0])
        for name, lag in groups.items() if groups else ():
            if group is None or group == name:
                self._look(lag, name, queue, since_ms)

    def _look(self, lag: GroupLag, group: str, queue: str, since_ms: int) -> None:
        committed = self._core.offsets.query(group, queue, LITE_QUEUE_ID)
        end = self._core.store.max_offset(queue, LITE_QUEUE_ID)
        lag.set(queue, max(0, end - committed) if committed >= 0 else 0, since_ms)
