"""All ConsumeQueues of a store, by topic and queue.  Source: RocketMQ 5.3.3, `ConsumeQueueStore`."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remoting.codes import ResponseCode
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.failpoints import failpoint
from store.batch_consume_queue import BatchConsumeQueue
from store.config import StoreConfig
from store.consume_queue import ConsumeQueue
from store.disk import Disk
from store.logic_queue import LogicQueue, QueueType, QueueTypeOf, unknown_type

_log = logging.getLogger(__name__)
_NO_FILE_NAMES: Final = frozenset({"", ".", ".."})
_DELETE_BETWEEN_QUEUES: Final = failpoint("consume_queue_table.delete_between_queues")
_QUEUES_DELETED: Final = failpoint("consume_queue_table.queues_deleted")


class ConsumeQueueTable:
    """Finds and makes ConsumeQueues, of the type that `type_of` gives a topic.

    All queues of a topic are of one type, that of the first: what lies on the disk holds for a topic nobody knows.
    """

    def __init__(self, config: StoreConfig, disk: Disk, type_of: QueueTypeOf = unknown_type) -> None:
        self._disk = disk
        self._type_of = type_of
        self._directory: Path = config.consume_queue_path
        self._file_bytes = config.consume_queue_file_bytes
        self._batch_directory: Path = config.batch_consume_queue_path
        self._batch_file_bytes = config.batch_consume_queue_file_bytes
        self.by_key: dict[tuple[str, int], LogicQueue] = {}
        self._types: dict[str, QueueType] = {}

    def __iter__(self) -> Iterator[LogicQueue]:
        return iter(list(self.by_key.values()))

    def load(self) -> bool:
        """Open what is on disk.  False if any queue could not be used and was removed, to be rebuilt from the log.

        Raises `StoreError` for a topic that has queues of another type than it was given.
        """
        usable = self._load(self._directory, QueueType.SIMPLE)
        return self._load(self._batch_directory, QueueType.BATCH) and usable

    def _load(self, directory: Path, queue_type: QueueType) -> bool:
        usable = True
        for topic in self._disk.names(directory):
            for name in self._disk.names(directory / topic):
                if not (name.isascii() and name.isdigit()):
                    _log.warning("directory=%s action=ignored reason=no-queue", directory / topic / name)
                    continue
                self._check_type(directory / topic, topic, queue_type)
                queue = self.get_or_create(topic, int(name))
                try:
                    queue.load()
                except StoreError as error:
                    # A ConsumeQueue holds nothing that the log does not hold.
                    _log.warning("topic=%s queue=%s action=rebuild reason=%r", topic, name, str(error))
                    queue.destroy()
                    usable = False
        return usable

    def _check_type(self, directory: Path, topic: str, queue_type: QueueType) -> None:
        given = self._types.get(topic) or self._type_of(topic)
        if given is not None and given is not queue_type:
            raise StoreError(
                f"{directory}: the queue type of topic {topic} should be {queue_type}, but is {given}; set the topic's"
                " attribute queue.type back in config/topics.json, or remove the directory: the log makes it anew"
            )
        self._types[topic] = queue_type

    def queue_type(self, topic: str) -> QueueType:
        """The type of a topic's queues."""
        return self._types.get(topic) or self._type_of(topic) or QueueType.SIMPLE

    def get_or_create(self, topic: str, queue_id: int) -> LogicQueue:
        """The queue, made in memory if it is new: its directory appears with its first entry.

        Raises `RequestError` for a name that would lead out of the store's directory.
        """
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if topic in _NO_FILE_NAMES or "/" in topic or "\0" in topic or queue_id < 0:
                remark = f"message is illegal: topic {topic!r} queue {queue_id} cannot be a directory"
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
            queue = self.by_key[topic, queue_id] = self._make(topic, queue_id)
        return queue

    def _make(self, topic: str, queue_id: int) -> LogicQueue:
        queue_type = self._types[topic] = self.queue_type(topic)
        if queue_type is QueueType.BATCH:
            return BatchConsumeQueue(self._disk, self._batch_directory, topic, queue_id, self._batch_file_bytes)
        return ConsumeQueue(self._disk, self._directory, topic, queue_id, self._file_bytes)

    def delete_topic(self, topic: str) -> int:
        """Remove all queues of `topic`; return how many there were."""
        keys = [key for key in self.by_key if key[0] == topic]
        for key in keys:
            self.by_key.pop(key).destroy()
            _DELETE_BETWEEN_QUEUES()
        _QUEUES_DELETED()
        self._types.pop(topic, None)
        self._disk.remove_tree(self._directory / topic)
        self._disk.remove_tree(self._batch_directory / topic)
        return len(keys)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove one queue."""
        self.by_key.pop((topic, queue_id)).destroy()
        if not any(key[0] == topic for key in self.by_key):
            self.delete_topic(topic)

    def destroy(self) -> None:
        """Empty every queue and remove its files."""
        for queue in self:
            queue.destroy()

    def close(self) -> None:
        for queue in self:
            queue.close()
