"""All ConsumeQueues of a store, by topic and queue.  Source: RocketMQ 5.3.3, `ConsumeQueueStore`."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remoting.codes import ResponseCode
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.failpoints import failpoint
from store.config import StoreConfig
from store.consume_queue import ConsumeQueue
from store.disk import Disk

_log = logging.getLogger(__name__)
_NO_FILE_NAMES: Final = frozenset({"", ".", ".."})
_DELETE_BETWEEN_QUEUES: Final = failpoint("consume_queue_table.delete_between_queues")
_QUEUES_DELETED: Final = failpoint("consume_queue_table.queues_deleted")


class ConsumeQueueTable:
    """Finds and makes ConsumeQueues."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._disk = disk
        self._directory: Path = config.consume_queue_path
        self._file_bytes = config.consume_queue_file_bytes
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.by_key.values()))

    def load(self) -> bool:
        """Open what is on disk.  False if any queue could not be used and was removed, to be rebuilt from the log."""
        usable = True
        for topic in self._disk.names(self._directory):
            for name in self._disk.names(self._directory / topic):
                if not (name.isascii() and name.isdigit()):
                    _log.warning("directory=%s action=ignored reason=no-queue", self._directory / topic / name)
                    continue
                queue = self.get_or_create(topic, int(name))
                try:
                    queue.load()
                except StoreError as error:
                    # A ConsumeQueue holds nothing that the log does not hold.
                    _log.warning("topic=%s queue=%s action=rebuild reason=%r", topic, name, str(error))
                    queue.destroy()
                    usable = False
        return usable

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made in memory if it is new: its directory appears with its first entry.

        Raises `RequestError` for a name that would lead out of the store's directory.
        """
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if topic in _NO_FILE_NAMES or "/" in topic or "\0" in topic or queue_id < 0:
                remark = f"message is illegal: topic {topic!r} queue {queue_id} cannot be a directory"
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
            queue = ConsumeQueue(self._disk, self._directory, topic, queue_id, self._file_bytes)
            self.by_key[topic, queue_id] = queue
        return queue

    def delete_topic(self, topic: str) -> int:
        """Remove all queues of `topic`; return how many there were."""
        keys = [key for key in self.by_key if key[0] == topic]
        for key in keys:
            self.by_key.pop(key).destroy()
            _DELETE_BETWEEN_QUEUES()
        _QUEUES_DELETED()
        self._disk.remove_tree(self._directory / topic)
        return len(keys)

    def destroy(self) -> None:
        """Empty every queue and remove its files."""
        for queue in self:
            queue.destroy()

    def close(self) -> None:
        for queue in self:
            queue.close()
