"""All ConsumeQueues of a store, by topic and queue.  Source: RocketMQ 5.3.3, `ConsumeQueueStore`."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from sprocket.common.errors import DiskFailed, RequestError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.pause_gc import pause_gc
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID, is_light
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.disk.mapped_file_queue import warn_of_strangers
from store.disk.open_files import PooledDisk, descriptor_budget
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import TopicQueue
from store.queue.light_queue import LightQueue, LightQueues
from store.queue.logic_queue import LogicQueue, QueueType, QueueTypeOf, unknown_type

_log = logging.getLogger(__name__)
_NO_FILE_NAMES: Final = frozenset({"", ".", ".."})
_MAX_FILE_NAME_BYTES: Final = 255
_DELETE_BETWEEN_QUEUES: Final = failpoint("consume_queue_table.delete_between_queues")
_QUEUES_DELETED: Final = failpoint("consume_queue_table.queues_deleted")


class ListedUnits(Protocol):
    """Units that a list of queues names (`store.flush.queue_list`): first unit with a file, and end, by queue.

    A queue without a first unit begins at 0.
    """

    @property
    def first_units(self) -> Mapping[tuple[str, int], int]: ...

    @property
    def end_units(self) -> Mapping[tuple[str, int], int]: ...


def is_file_name(topic: str) -> bool:
    """Return whether a directory can have the topic's name (`HookUtils.checkBeforePutMessage`)."""
    is_name = topic not in _NO_FILE_NAMES and "/" not in topic and "\0" not in topic
    return is_name and len(topic.encode()) <= _MAX_FILE_NAME_BYTES


class ConsumeQueueTable:
    """Table of ConsumeQueues.  It creates queues of the type that `type_of` gives for a topic.

    All queues of a topic have the type of the first.  For an unknown topic, the files on the disk give the type.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        type_of: QueueTypeOf = unknown_type,
        max_descriptors: int | None = None,
    ) -> None:
        self._disk = PooledDisk(disk, descriptor_budget() if max_descriptors is None else max_descriptors)
        self._type_of = type_of
        self._directory: Path = config.consume_queue_path
        self._file_bytes = config.consume_queue_file_bytes
        self._batch_directory: Path = config.batch_consume_queue_path
        self._batch_file_bytes = config.batch_consume_queue_file_bytes
        self.by_key: dict[tuple[str, int], LogicQueue] = {}
        self.usual: dict[tuple[str, int], None] = {}  # keys of queues that are not light
        # Called when queues are removed, so that nobody keeps one in whose place another one may come.
        self.on_removed: list[Callable[[], None]] = []
        self._types: dict[str, QueueType] = {}
        self._light = LightQueues(self._disk, self._directory, self._file_bytes)
        self.light_count = 0
        # Whether the log may hold records that are in light queues.
        self.dispatches = config.enable_lmq and config.enable_multi_dispatch
        # Names of files in place of a topic's directory.
        self._blocked: set[str] = set()

    def __iter__(self) -> Iterator[LogicQueue]:
        return iter(list(self.by_key.values()))

    def load(self, listed: ListedUnits | None = None) -> bool:
        """Find the queues on the disk.  Return False if one was unusable and removed: it must be rebuilt from the log.

        Only names and sizes are checked; the first use of a file opens it.  With the list of a run that stopped
        cleanly, the directory of a queue with one file is not listed: to list 50,000 of them takes seconds.  Raises
        `DiskFailed`, also for a file in place of a directory, and `StoreError` for a topic with queues of a type other
        than its own.
        """
        with pause_gc():
            usable = self._load(self._directory, QueueType.SIMPLE, listed)
            return self._load(self._batch_directory, QueueType.BATCH, listed) and usable

    def _load(self, directory: Path, queue_type: QueueType, listed: ListedUnits | None) -> bool:
        usable = True
        strange = []
        known: set[str] = set()
        if listed is not None and queue_type is QueueType.SIMPLE:
            known = self._load_listed_light(listed)
        for topic, size in self._disk.entries(directory, known):
            if size is not None:
                strange.append(topic)
                self._blocked.add(topic)
                continue
            topic_directory = directory / topic
            queue_ids, others = _queue_ids(self._disk.entries(topic_directory))
            if others:
                warn_of_strangers(topic_directory, others)
            for queue_id in queue_ids:
                self._check_type(topic_directory, topic, queue_type)
                usable = self._load_queue(self.get_or_create(topic, queue_id), listed) and usable
        if strange:
            warn_of_strangers(directory, strange)
        return usable

    def _load_listed_light(self, listed: ListedUnits) -> set[str]:
        """Load the light queues whose files are as the list says, without a look at their directories.

        Return their names.  The table keeps the names of the list: of 100,000 queues all names take 16 MB.
        """
        known, light, first_units, by_key = set(), self._light, listed.first_units, self.by_key
        for key, end in listed.end_units.items():
            topic, queue_id = key
            if queue_id != LIGHT_QUEUE_ID or not is_light(topic) or not is_file_name(topic):
                continue
            if self.queue_type(topic) is not QueueType.SIMPLE:
                continue
            queue = LightQueue(light, topic)
            if queue.load_listed(first_units.get(key, 0), end):
                by_key[key] = queue
                known.add(topic)
        self._count_light(len(known))
        return known

    def _load_queue(self, queue: LogicQueue, listed: ListedUnits | None) -> bool:
        key = queue.topic, queue.queue_id
        try:
            if listed is None or not queue.load_listed(listed.first_units.get(key, 0), listed.end_units.get(key, 0)):
                queue.load()
        except DiskFailed:
            raise
        except StoreError as error:
            # The log holds everything that a ConsumeQueue holds.
            peer_lines.warning(
                _log, "", "event=queue_rebuild topic=%s queue=%d reason=%r", queue.topic, queue.queue_id, str(error)
            )
            queue.destroy()
            return False
        return True

    def _check_type(self, directory: Path, topic: str, queue_type: QueueType) -> None:
        given = self._types.get(topic) or self._type_of(topic)
        if given is not None and given is not queue_type:
            raise StoreError(
                f"{directory}: the queue type of topic {topic} should be {queue_type}, but is {given}; set the topic's"
                " attribute queue.type back in config/topics.json, or remove the directory: it is rebuilt from the log"
            )
        if not is_light(topic):
            self._types[topic] = queue_type

    def queue_type(self, topic: str) -> QueueType:
        """Return the type of a topic's queues."""
        return self._types.get(topic) or self._type_of(topic) or QueueType.SIMPLE

    def get_or_create(self, topic: str, queue_id: int) -> LogicQueue:
        """Return the queue; create a new one in memory.  Its first entry creates its directory.

        Raises `RequestError` for a name that cannot be a directory.
        """
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.new(topic, queue_id)
            self._put((topic, queue_id), queue)
        return queue

    def new(self, topic: str, queue_id: int) -> LogicQueue:
        """Return a new queue in memory, which is not in the table.  Raises as `get_or_create`."""
        if topic in self._blocked or queue_id < 0 or not is_file_name(topic):
            remark = f"message is illegal: topic {topic!r} queue {queue_id} cannot be a directory"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        return self._make(topic, queue_id)

    def add(self, queue: LogicQueue) -> None:
        """Put a new queue into the table, unless it is there."""
        key = queue.topic, queue.queue_id
        if key not in self.by_key:
            self._put(key, queue)

    def continue_at(self, ends: Mapping[tuple[str, int], int]) -> list[tuple[LogicQueue, int, int]]:
        """Let queues whose messages are all elsewhere end at `ends`; return those that grew, with their old ends.

        A queue never goes back.  Batch queues are left out.  Nothing is written: the caller does this after each start.
        """
        grown: list[tuple[LogicQueue, int, int]] = []
        for (topic, queue_id), end in ends.items():
            queue = self.get_or_create(topic, queue_id)
            if not queue.is_batch and queue.next_offset < end:
                grown.append((queue, queue.next_offset, end))
                queue.set_range(end, end, cut=False)
        return grown

    def _put(self, key: tuple[str, int], queue: LogicQueue) -> None:
        self.by_key[key] = queue
        if is_light(key[0]):
            self._count_light(1)
        else:
            self.usual[key] = None

    def _count_light(self, more: int) -> None:
        self.light_count += more
        self.dispatches = self.dispatches or more > 0

    def _make(self, topic: str, queue_id: int) -> LogicQueue:
        queue_type = self.queue_type(topic)
        if queue_id == LIGHT_QUEUE_ID and queue_type is QueueType.SIMPLE and is_light(topic):
            return LightQueue(self._light, topic)
        self._types[topic] = queue_type
        if queue_type is QueueType.BATCH:
            return BatchConsumeQueue(self._disk, self._batch_directory, topic, queue_id, self._batch_file_bytes)
        return TopicQueue(self._disk, self._directory, topic, queue_id, self._file_bytes)

    def of_topic(self, topic: str) -> list[LogicQueue]:
        """Return all queues of `topic`."""
        light = self.by_key.get((topic, LIGHT_QUEUE_ID)) if is_light(topic) else None
        if isinstance(light, LightQueue):
            return [light]  # a light queue has only this one
        return [queue for key, queue in self.by_key.items() if key[0] == topic]

    def delete_topic(self, topic: str) -> int:
        """Remove all queues of `topic`; return how many there were.  Not durable: see `DeletedTopics`."""
        queues = self.of_topic(topic)
        self._removed()
        for queue in queues:
            self._forget(topic, queue.queue_id).destroy()
            _DELETE_BETWEEN_QUEUES()
        _QUEUES_DELETED()
        self._types.pop(topic, None)
        for directory in (self._directory, self._batch_directory):
            self._disk.remove_files(directory / topic, ())
        return len(queues)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove one queue."""
        self._removed()
        self._forget(topic, queue_id).destroy()
        if not any(key[0] == topic for key in self.by_key):
            self.delete_topic(topic)

    def _forget(self, topic: str, queue_id: int) -> LogicQueue:
        self.light_count -= is_light(topic)
        self.usual.pop((topic, queue_id), None)
        return self.by_key.pop((topic, queue_id))

    def with_files(self) -> list[LogicQueue]:
        """Return the queues that may have unsynced entries: all but quiet light ones.  Any thread may call it."""
        usual = [self.by_key.get(key) for key in list(self.usual)]
        return [queue for queue in usual if queue is not None] + self._light.awake()

    def light(self) -> list[str]:
        """Return the names of all light queues."""
        return [topic for topic, _ in self.by_key if is_light(topic)]

    def rest(self) -> None:
        """Drop what quiet light queues do not need in memory, of some of them."""
        self._light.rest()

    def _removed(self) -> None:
        for listener in self.on_removed:
            listener()

    def destroy(self) -> None:
        """Remove every queue and its files.  Not durable: the caller has recorded that they must be rebuilt."""
        self._removed()
        for queue in self:
            queue.destroy()
        self.by_key.clear()
        self.usual.clear()
        self.light_count = 0

    def close(self) -> None:
        for queue in self:
            queue.close()

    # Files

    @property
    def directories(self) -> tuple[Path, Path]:
        """The two parents of the topics' directories."""
        return self._directory, self._batch_directory

    @property
    def files(self) -> PooledDisk:
        """Disk of the queues' files, with a limited number of open files."""
        return self._disk


def _queue_ids(entries: list[tuple[str, int | None]]) -> tuple[list[int], list[str]]:
    """Return the queue ids among the names in a topic's directory, and the other names."""
    queue_ids, others = [], []
    for name, size in entries:
        if size is None and name.isascii() and name.isdigit() and name == str(int(name[:10])):
            queue_ids.append(int(name))
        else:
            others.append(name)
    return queue_ids, others
