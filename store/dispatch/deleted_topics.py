"""The file of deleted topics: recovery does not restore their messages.

The log keeps the records of a deleted topic until they expire, and recovery can rebuild ConsumeQueues from the log.  So
a deletion is recorded, durably, before the queues' files are removed.  Sprocket's own file, ``<root>/deletedtopics``.

Content of the sealed file, big-endian: for each topic a physical offset i64, the length of its name u16, the name.
"""

import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from store.disk.disk import Disk
from store.disk.sealed_file import read_sealed, write_sealed

_log = logging.getLogger(__name__)
_KIND: Final = b"DTOP"
_HEAD: Final = struct.Struct(">qH")


def encode(offsets: dict[str, int]) -> bytes:
    """Return the content of the file."""
    parts = []
    for topic, offset in offsets.items():
        name = topic.encode()
        parts += [_HEAD.pack(offset, len(name)), name]
    return b"".join(parts)


def decode(content: bytes) -> dict[str, int] | str:
    """Return topic -> offset, or a few words on why `content` is invalid.  Never raises on any bytes."""
    offsets = {}
    at = 0
    try:
        while at < len(content):
            offset, name_bytes = _HEAD.unpack_from(content, at)
            at += _HEAD.size + name_bytes
            offsets[content[at - name_bytes : at].decode()] = offset
    except (struct.error, UnicodeDecodeError) as error:
        return str(error)
    return offsets if at == len(content) else "a name leaves the file"


class DeletedTopics:
    """The file of one store, and its content in memory."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = root / "deletedtopics"
        self._offsets: dict[str, int] = {}

    def load(self) -> None:
        """Read the file.  A damaged file is logged, and counts as empty."""
        content = read_sealed(self._disk, self.path, _KIND)
        found = decode(content) if isinstance(content, bytes) else content
        if isinstance(found, str):
            _log.warning(
                "event=deleted_topics_not_trusted file=%s effect=deleted_topics_may_return reason=%r", self.path, found
            )
        self._offsets = found if isinstance(found, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def offset_of(self, topic: str) -> int:
        """Return the physical offset before which the records of `topic` are deleted; 0 if none are."""
        return self._offsets.get(topic, 0)

    def add(self, topics: Sequence[str], offset: int, log_min_offset: int) -> None:
        """Record, durably, that `topics` are deleted up to `offset`.  Raises `DiskFull` or `DiskFailed`.

        Deletions before `log_min_offset`, the log's begin, are forgotten.
        """
        offsets = {name: end for name, end in self._offsets.items() if end > log_min_offset}
        self._write(offsets | dict.fromkeys(topics, offset))

    def cut(self, log_end: int) -> None:
        """Adapt to a log truncated at `log_end`: records after it are new and not deleted.  Raises as `add`."""
        if any(offset > log_end for offset in self._offsets.values()):
            self._write({topic: min(offset, log_end) for topic, offset in self._offsets.items()})

    def _write(self, offsets: dict[str, int]) -> None:
        write_sealed(self._disk, self.path, _KIND, encode(offsets))
        self._offsets = offsets
