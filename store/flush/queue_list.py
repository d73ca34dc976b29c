"""List of all queues and how far each is on the disk, so that recovery notices missing entries.

RocketMQ trusts the directories that it finds.  Sprocket's own file ``<root>/queuelist`` is written immediately before
each checkpoint.  It says: log and queues are on the disk for all records before `log_offset`.  Each queue has at least
`end_unit` units on the disk, and the records of those units are on the disk too.

Before recovery rebuilds all queues it sets `must_rebuild` here, so that a crash during the rebuild is noticed.

Content of the sealed file, big-endian: `log_offset` i64, `log_min_offset` i64, `must_rebuild` u8, number of topics i32.
For each topic: length of its name u16, the name, number of its queues i32.  For each queue: its id i32, the first unit
with a file i64, and `end_unit` i64.
"""

import logging
import struct
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from store.disk.disk import Disk
from store.disk.sealed_file import read_sealed, write_sealed

_log = logging.getLogger(__name__)
QUEUE_LIST_KIND: Final = b"QLST"
_HEAD: Final = struct.Struct(">qq?i")
_NAME: Final = struct.Struct(">H")
_COUNT: Final = struct.Struct(">i")
_QUEUE: Final = struct.Struct(">iqq")
QueueKey = tuple[str, int]


@dataclass(slots=True)
class QueueList:
    """Content of the file.

    `end_units`: queue -> one past its last unit, for queues with units.  `first_units`: queue -> first unit with a
    file, if that is not 0.  `log_min_offset`: where the log began.
    """

    log_offset: int
    end_units: dict[QueueKey, int] = field(default_factory=dict)
    must_rebuild: bool = False
    first_units: dict[QueueKey, int] = field(default_factory=dict)
    log_min_offset: int = 0


def encode(queue_list: QueueList) -> bytes:
    """Return the bytes of the file's content."""
    packed, topics, first_units = bytearray(_HEAD.size), 0, queue_list.first_units
    # The queues of a topic may be in several places.
    for topic, keys in groupby(queue_list.end_units, itemgetter(0)):
        name = topic.encode()
        queues = [_QUEUE.pack(key[1], first_units.get(key, 0), queue_list.end_units[key]) for key in keys]
        packed += b"".join((_NAME.pack(len(name)), name, _COUNT.pack(len(queues)), *queues))
        topics += 1
    _HEAD.pack_into(packed, 0, queue_list.log_offset, queue_list.log_min_offset, queue_list.must_rebuild, topics)
    return bytes(packed)


def decode(content: bytes) -> QueueList | str:
    """Return the list in `content`, or a few words on why it is invalid.  Never raises on any bytes."""
    try:
        log_offset, log_min_offset, must_rebuild, topics = _HEAD.unpack_from(content)
        found = QueueList(log_offset, must_rebuild=must_rebuild, log_min_offset=log_min_offset)
        at = _HEAD.size
        for _ in range(topics):
            name_end = at + _NAME.size + _NAME.unpack_from(content, at)[0]
            topic = content[at + _NAME.size : name_end].decode()
            (queues,) = _COUNT.unpack_from(content, name_end)
            at = name_end + _COUNT.size + queues * _QUEUE.size
            if queues < 0 or at > len(content):
                return "queues leave the file"
            for queue_id, first_unit, end_unit in _QUEUE.iter_unpack(content[name_end + _COUNT.size : at]):
                found.end_units[topic, queue_id] = end_unit
                if first_unit:
                    found.first_units[topic, queue_id] = first_unit
    except (struct.error, UnicodeDecodeError) as error:
        return str(error)
    if at != len(content) or log_offset < 0 or any(end < 0 for end in found.end_units.values()):
        return "numbers are out of bounds"
    return found


class QueueListFile:
    """The file of one store."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = root / "queuelist"

    def read(self) -> QueueList | None:
        """Return its content; None if there is no file.  A damaged file is logged; then nothing is taken as flushed."""
        content = read_sealed(self._disk, self.path, QUEUE_LIST_KIND)
        if content is None:
            return None
        found = decode(content) if isinstance(content, bytes) else content
        if isinstance(found, str):
            _log.warning("event=queue_list_not_trusted file=%s effect=whole_log_is_read reason=%r", self.path, found)
            return QueueList(0, must_rebuild=True)
        return found

    def write(self, queue_list: QueueList) -> None:
        """Replace it durably.  Raises `DiskFull` or `DiskFailed`."""
        write_sealed(self._disk, self.path, QUEUE_LIST_KIND, encode(queue_list))
