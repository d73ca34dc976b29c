"""Redelivery of messages that were not acknowledged in time, through their group's retry topic.

Source: RocketMQ 5.3.3, `PopReviveService.reviveMsgFromCk`, `reviveRetry`, `rePutCK`, `addRetryTopicIfNotExist`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.core import BrokerCore
from broker.pop.records import PopCheckPoint
from broker.pop.revive.revive_window import Held, open_indexes
from broker.pop.revive.revived_message import is_given_up, revived, rewritten, topic_of
from broker.topic.retry_topics import normal_topic
from sprocket.common.errors import CorruptRecord, RequestError, StoreBusy
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.topic import TopicConfig
from store.delivery import Outstanding
from store.message_store import PendingMessage
from store.queue.consume_queue_table import is_file_name
from store.record.record import Record, TagsCodes, decode
from store.tier.reads.queue_reads import TierRead

logger = logging.getLogger(__name__)

_MAX_BYTES: Final = 0x7FFFFFFF
_BEFORE_APPEND: Final = failpoint("revive.before_append")
_APPENDED: Final = failpoint("revive.appended")


class CheckpointLog(Protocol):
    """Encoder of checkpoints' records: `ReviveLog`."""

    topic: str

    def checkpoint(self, checkpoint: PopCheckPoint, revive_queue_id: int, /) -> PendingMessage: ...


# Called with (checkpoint, number of its messages) that were stored in the retry topic.
RevivedListener = Callable[[PopCheckPoint, int], None]


@dataclass(slots=True)
class ReviveFigures:
    """Counts of one revive queue since the start."""

    checkpoints: int = 0  # read
    acks: int = 0  # read; one record may acknowledge several messages
    retried: int = 0  # messages stored in retry topics
    rewritten: int = 0  # checkpoints written again
    # Records read, by group, topic and kind (CK, ACK), and messages stored in retry topics, by group and topic.
    read: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    retried_by: Counter[tuple[str, str]] = field(default_factory=Counter)


class Due:
    """One message to redeliver; with `is_later` its `message` is a checkpoint, because it cannot be redelivered now."""

    __slots__ = ("checkpoint", "index", "is_later", "message")

    def __init__(self, checkpoint: PopCheckPoint, index: int, message: PendingMessage, is_later: bool) -> None:
        self.checkpoint = checkpoint
        self.index = index
        self.message = message
        self.is_later = is_later


class Reviver:
    """Revive the due messages of one revive queue."""

    def __init__(
        self,
        core: BrokerCore,
        log: CheckpointLog,
        queue_id: int,
        figures: ReviveFigures,
        on_revived: list[RevivedListener],
    ) -> None:
        self._core = core
        self._log = log
        self._queue_id = queue_id
        self._figures = figures
        self._codes = TagsCodes(core.config.store.message_delay_level)
        self._on_revived = on_revived
        self._new_topics: dict[str, tuple[str, int]] = {}  # retry topic -> its group, number of its queues

    def due(self, held: Held) -> list[Due]:
        """Return what to write for a checkpoint."""
        checkpoint = held.checkpoint
        if checkpoint is None:
            return []
        indexes = open_indexes(checkpoint)
        if not indexes or not self._is_wanted(checkpoint):
            return []
        if checkpoint.bn and checkpoint.bn != self._core.config.broker.broker_name:
            # The messages are another broker's; where slaves act for masters `RemoteRevive` fetches them.
            return [due for index in indexes if (due := self.later(checkpoint, index)) is not None]
        found = [(index, self._message_at(checkpoint, checkpoint.offset_at(index))) for index in indexes]
        made = [
            self.later(checkpoint, index) if record is None else self.again(checkpoint, index, record)
            for index, record in found
        ]
        return [one for one in made if one is not None]

    def _is_wanted(self, checkpoint: PopCheckPoint) -> bool:
        if self._core.topics.get(normal_topic(checkpoint.t, checkpoint.c)) is None:
            reason = "no such topic"
        elif self._core.groups.find(checkpoint.c) is None:
            reason = "no such group"
        elif not is_file_name(topic_of(checkpoint, self._core.config.broker.enable_retry_topic_v2)):
            # The pop was served by a version that did not refuse such names.
            reason = "the name of its retry topic is too long"
        else:
            return True
        peer_lines.warning(logger, "", "event=checkpoint_dropped reason=%r checkpoint=%s", reason, checkpoint)
        return False

    def again(self, checkpoint: PopCheckPoint, index: int, record: Record | str) -> Due | None:
        """Return the popped message `record` for the retry topic; log and return None if `record` is a reason."""
        offset = checkpoint.offset_at(index)
        if isinstance(record, str):
            peer_lines.warning(
                logger, "", "event=not_revived topic=%s group=%s queue=%d offset=%d reason=%r",
                checkpoint.t, checkpoint.c, checkpoint.q, offset, record,
            )  # fmt: skip
            return None
        topic, queues = self._retry_topic(checkpoint)
        queue_id = record.queue_id if record.queue_id < queues else 0
        message = revived(record, checkpoint, topic, queue_id, self._core.store.store_host, self._codes)
        return Due(checkpoint, index, message, is_later=False)

    def _message_at(self, checkpoint: PopCheckPoint, offset: int) -> Record | str | None:
        """Return the popped message, or the reason why it cannot be read; None while the object store sends it."""
        store = self._core.store
        entry = store.entry(checkpoint.t, checkpoint.q, offset)
        try:
            if entry is None:
                record = self._message_elsewhere(checkpoint, offset)
            else:
                view = store.record_at(entry[0], entry[1])
                record = "not in the log" if view is None else decode(view)
        except CorruptRecord as damage:
            return damage.reason
        is_other = isinstance(record, Record) and record.store_timestamp > checkpoint.pt
        if is_other and store.was_deleted(checkpoint.t):
            return "the topic was deleted after the pop, and this message is of the new topic"
        return record

    def _message_elsewhere(self, checkpoint: PopCheckPoint, offset: int) -> Record | str | None:
        """Return a popped message that the log no longer has, as `_message_at`.  Raises CorruptRecord."""
        store, tier, topic, queue_id = self._core.store, self._core.tier, checkpoint.t, checkpoint.q
        if tier.serves(topic, queue_id, offset):
            read = TierRead(checkpoint.c, topic, queue_id, offset, 1, _MAX_BYTES, None)
            found = tier.read_now(read, lambda: None)
            if found is None:
                return None
        elif store.compaction.of(topic, queue_id) is not None:
            found = store.get(topic, queue_id, offset, 1, _MAX_BYTES)
        else:
            return "not in the queue"
        record = decode(found.slices[0]) if found.slices else "not there any more"
        is_wanted = isinstance(record, str) or record.queue_offset == offset
        return record if is_wanted else "not there any more"

    def _retry_topic(self, checkpoint: PopCheckPoint) -> tuple[str, int]:
        """Return the retry topic, and how many of its queues are used: one, or as many as its topic has.

        A topic that is new or must grow is created before anything is appended.
        """
        broker, topics = self._core.config.broker, self._core.topics
        name, queues = topic_of(checkpoint, broker.enable_retry_topic_v2), 1
        normal = topics.get(normal_topic(checkpoint.t, checkpoint.c)) if broker.use_separate_retry_queue else None
        if normal is not None:
            queues = max(normal.write_queue_nums, 1)
        there = topics.get(name)
        if self._core.role.is_slave:  # the master that gets the messages creates topics
            queues = min(queues, there.write_queue_nums) if there is not None else 1
        elif there is None or there.write_queue_nums < queues:
            self._new_topics[name] = checkpoint.c, queues
        return name, queues

    def _make_topics(self) -> None:
        """Create all new topics at once, because each update writes the file of all topics."""
        core, topics = self._core, self._new_topics
        if core.role.is_slave:
            topics.clear()
        if not topics:
            return
        core.topics.update([TopicConfig(topic, queues, queues) for topic, (_, queues) in topics.items()])
        for topic, (group, queues) in topics.items():
            for queue_id in range(queues):
                if core.offsets.query(group, topic, queue_id) < 0:
                    core.offsets.commit(group, topic, queue_id, 0)
        topics.clear()

    def later(self, checkpoint: PopCheckPoint, index: int) -> Due | None:
        """Return a later checkpoint of one message; None if it was written again too often."""
        offset = checkpoint.offset_at(index)
        if is_given_up(checkpoint, self._core.config.broker.skip_when_ck_re_put_reach_max_times):
            peer_lines.error(logger, "", "event=checkpoint_given_up offset=%d checkpoint=%s", offset, checkpoint)
            return None
        later = rewritten(checkpoint, offset, self._core.clock.wall_ms())
        try:
            message = self._log.checkpoint(later, self._queue_id)
        except RequestError as error:
            raise StoreBusy(f"the timer refuses a checkpoint: {error.remark}") from error
        return Due(checkpoint, index, message, is_later=True)

    def deliver(self, due: Sequence[Due], done: Callable[[], None]) -> Outstanding | None:
        """Deliver all, then call `done`; what the store refuses is tried again later.

        Raises StoreError, also if a topic cannot be created; the checkpoints then record what is done already.
        """
        self._make_topics()
        _BEFORE_APPEND()

        def delivered() -> None:
            for one in due:
                self._note(one.checkpoint, one.is_later)
            _APPENDED()
            done()

        try:
            return self._core.delivery.deliver([one.message for one in due], delivered)
        except RequestError:
            # One message exceeds a limit that was changed after it was sent.  The others must not wait for it.
            for one in due:
                self._append_alone(one)
                one.checkpoint.bm |= 1 << one.index
        _APPENDED()
        done()
        return None

    def _append_alone(self, due: Due) -> None:
        checkpoint, store = due.checkpoint, self._core.store
        try:
            store.append([due.message])
            self._note(checkpoint, due.is_later)
        except RequestError as error:
            peer_lines.error(
                logger, "", "event=not_revived topic=%s group=%s queue=%d offset=%d reason=%r",
                checkpoint.t, checkpoint.c, checkpoint.q, checkpoint.offset_at(due.index), error.remark,
            )  # fmt: skip
            later = None if due.is_later else self.later(checkpoint, due.index)
            if later is not None:
                store.append([later.message])
                self._note(checkpoint, is_later=True)

    def _note(self, checkpoint: PopCheckPoint, is_later: bool) -> None:
        if is_later:
            self._figures.rewritten += 1
            return
        self._figures.retried += 1
        self._figures.retried_by[checkpoint.c, checkpoint.t] += 1
        for listener in self._on_revived:
            listener(checkpoint, 1)
