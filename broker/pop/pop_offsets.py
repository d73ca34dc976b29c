"""Offset of the next pop of each queue, and the part of it that is committed.

A pop advances the offset at once, in memory.  The consumer offset follows when the checkpoint of the delivered messages
is durable, in the order of the queue.  If the broker dies in between, the messages are redelivered.
Source: RocketMQ 5.3.3, `PopMessageProcessor.getPopOffset`, `getInitOffset`, `resetPopOffset`,
`PopBufferMergeService.scanCommitOffset`, `commitOffset`.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from broker.core import BrokerCore
from broker.pop.order_info import ConsumerOrderInfo
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from store.queue.queue_reader import physical_memory_bytes

logger = logging.getLogger(__name__)

# initMode: from the first message; any other value is from the end.
FROM_FIRST: Final = 0

# Returns whether a topic and a group exist.
IsThere: TypeAlias = Callable[[str, str], bool]


class Taken:
    """What one pop took from one queue: everything before `next_offset`."""

    __slots__ = ("group", "is_safe", "messages", "next_offset", "queue_id", "topic")

    def __init__(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.is_safe = False
        self.messages = 0  # number of delivered messages


class PopOffsets:
    """Offsets of pops.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, order_info: ConsumerOrderInfo) -> None:
        self._config = core.config
        self._store = core.store
        self._tier = core.tier
        self._offsets = core.offsets
        self._order_info = order_info
        # Taken but not committed, oldest first; no deque is empty.
        self._taken: dict[tuple[str, str, int], deque[Taken]] = {}
        self._memory_bytes = physical_memory_bytes()

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def latest(self, topic: str, group: str, queue_id: int) -> int:
        """Return where the next pop begins if the queue has uncommitted pops; else -1."""
        taken = self._taken.get((topic, group, queue_id))
        return taken[-1].next_offset if taken else -1

    def uncommitted(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of uncommitted pops of a queue."""
        return len(self._taken.get((topic, group, queue_id), ()))

    # Start of a pop

    def current(self, topic: str, group: str, queue_id: int, init_mode: int) -> int:
        """Return where a pop would begin, without a change."""
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._initial(topic, queue_id, init_mode)
        return max(offset, self.latest(topic, group, queue_id))

    def all_known(self, topic: str, group: str, queue_ids: range) -> list[int]:
        """Return where pops of queues begin; -1 for one that the group has not popped, and while a reset waits."""
        if self._offsets.has_resets:
            return [-1] * len(queue_ids)
        committed = self._offsets.queues(group, topic)
        offsets = [committed.get(queue_id, -1) for queue_id in queue_ids]
        if self._taken:
            for number, queue_id in enumerate(queue_ids):
                taken = self._taken.get((topic, group, queue_id))
                if taken and offsets[number] >= 0:
                    offsets[number] = max(offsets[number], taken[-1].next_offset)
        return offsets

    def begin(self, topic: str, group: str, queue_id: int, init_mode: int) -> int:
        """Return where a pop begins; sets the first offset of a group that is new to the queue, and applies a reset."""
        if self._offsets.has_resets:
            reset = self._offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._order_info.clear_block(topic, group, queue_id)
                self.place(topic, group, queue_id, reset)
                return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._initial(topic, queue_id, init_mode)
            self._offsets.commit(group, topic, queue_id, offset)
        return max(offset, self.latest(topic, group, queue_id))

    def _initial(self, topic: str, queue_id: int, init_mode: int) -> int:
        store = self._store
        # Clients of gRPC cannot choose, and a broker that reads an archive is read for its history.
        is_from_first = init_mode == FROM_FIRST or self._config.store.read_only_from
        if is_from_first or topic.startswith(RETRY_PREFIX):
            return self._tier.min_offset(topic, queue_id)
        if self._config.broker.init_pop_offset_by_check_msg_in_mem and self._tier.min_offset(topic, queue_id) <= 0:
            first = store.entry(topic, queue_id, 0)
            limit = self._memory_bytes * self._config.store.access_message_in_memory_max_ratio // 100
            if first is not None and store.wrote_offset - first[0] <= limit:
                return 0
        return max(store.max_offset(topic, queue_id) - 1, 0)

    def place(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set where the next pop begins, whatever was taken."""
        self._taken.pop((topic, group, queue_id), None)
        self._offsets.commit(group, topic, queue_id, offset)

    def forget(self, topic: str, group: str, queue_id: int) -> None:
        """Let the group be new to the queue, whatever was taken: its offset there was removed."""
        self._taken.pop((topic, group, queue_id), None)
        self._order_info.clear_block(topic, group, queue_id)

    # What a pop takes

    def take(self, topic: str, group: str, queue_id: int, next_offset: int) -> Taken:
        """Let the next pop begin at `next_offset`, which is uncommitted until `safe` or `undo`."""
        taken = Taken(topic, group, queue_id, next_offset)
        self._taken.setdefault((topic, group, queue_id), deque()).append(taken)
        return taken

    def skip(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        """Let the next pop begin at `next_offset`, because nothing before it is for the group."""
        if next_offset > self.current(topic, group, queue_id, FROM_FIRST):
            self.safe(self.take(topic, group, queue_id, next_offset))

    def undo(self, taken: Taken) -> None:
        """Let the next pop begin where an undelivered one did.

        Messages that later pops took from there on are then delivered twice.  Otherwise the undelivered messages would
        wait for the next start, and no later offset would be committed.
        """
        key = (taken.topic, taken.group, taken.queue_id)
        queue = self._taken.get(key)
        if queue is None or taken not in queue:
            return
        while queue.pop() is not taken:
            pass
        if not queue:
            del self._taken[key]

    def safe(self, taken: Taken) -> None:
        """Note that unacknowledged messages will be redelivered even after a crash; commit once all before is safe."""
        taken.is_safe = True
        key = (taken.topic, taken.group, taken.queue_id)
        queue = self._taken.get(key)
        if queue is None or not queue[0].is_safe:
            return
        next_offset = -1
        while queue and queue[0].is_safe:
            next_offset = queue.popleft().next_offset
        if not queue:
            del self._taken[key]
        topic, group, queue_id = key
        if self._offsets.has_resets and self._offsets.is_reset(group, topic, queue_id):
            return
        if next_offset > self._offsets.query(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, next_offset)

    def forget_gone(self, is_there: IsThere) -> None:
        """Forget queues of deleted topics and groups."""
        for key in [key for key in self._taken if not is_there(key[0], key[1])]:
            del self._taken[key]
            peer_lines.info(logger, "", "event=pop_offsets_forgotten topic=%s group=%s queue=%d", *key)
