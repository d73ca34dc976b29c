"""Format of ``epochFileCheckpoint``: the epochs of masters, and where in the log each of them begins.

A text file: the number of epochs, the CRC-32 of the following lines without its highest bit, then one line
``<epoch>-<start offset>`` per epoch.  Every line ends with a line feed.
Source: RocketMQ 5.3.3, `CheckpointFile`, `EpochFileCache.EpochEntrySerializer`.
"""

import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from store.disk.disk import Disk

# A larger file is refused before it is read: it would hold 40,000 epochs.
MAX_FILE_BYTES: Final = 1024 * 1024
MAX_EPOCH: Final = (1 << 31) - 1
MAX_OFFSET: Final = (1 << 63) - 1
_CRC_MASK: Final = 0x7FFFFFFF
# RocketMQ accepts this in place of any CRC.
_UNCHECKED_CRC: Final = 0
_NUMBER: Final = re.compile(rb"[0-9]{1,10}")
_EPOCH: Final = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return the file's content for pairs of epoch and start offset."""
    lines = [b"%d-%d\n" % epoch for epoch in epochs]
    content = b"".join(lines)
    return b"%d\n%d\n%s" % (len(lines), zlib.crc32(content) & _CRC_MASK, content)


def decode_epochs(content: bytes) -> list[tuple[int, int]] | str:
    """Return pairs of epoch and start offset, or a few words on why the content cannot be trusted.

    Epochs grow, and starts do not shrink.  Never raises on any bytes.
    """
    lines = content.split(b"\n", 2)
    if len(lines) < 3 or not _NUMBER.fullmatch(lines[0]) or not _NUMBER.fullmatch(lines[1]):
        return "it does not begin with a number of epochs and a CRC"
    rest = lines[2]
    crc = int(lines[1])
    if crc not in (_UNCHECKED_CRC, zlib.crc32(rest) & _CRC_MASK):
        return "its epochs do not match their CRC"
    epochs: list[tuple[int, int]] = []
    # RocketMQ reads a last line without a line feed as well.
    for line in rest.removesuffix(b"\n").split(b"\n") if rest else ():
        found = _EPOCH.fullmatch(line)
        if found is None:
            return f"{line[:40]!r} is no epoch"
        epoch = int(found[1]), int(found[2])
        if epoch[0] > MAX_EPOCH or epoch[1] > MAX_OFFSET:
            return f"epoch {epoch[0]} at {epoch[1]} is out of range"
        if epochs and (epoch[0] <= epochs[-1][0] or epoch[1] < epochs[-1][1]):
            return f"epoch {epoch[0]} at {epoch[1]} follows epoch {epochs[-1][0]} at {epochs[-1][1]}"
        epochs.append(epoch)
    if len(epochs) != int(lines[0]):
        return f"it has {len(epochs)} epochs, its first line says {int(lines[0])}"
    return epochs


def read_epochs(disk: Disk, path: Path) -> list[tuple[int, int]] | str | None:
    """Return the epochs in a file, or why it cannot be trusted; None if there is no file.  Raises `DiskFailed`."""
    size_bytes = disk.size(path)
    if size_bytes is None:
        return None
    if size_bytes > MAX_FILE_BYTES:
        return f"it has {size_bytes} bytes, at most {MAX_FILE_BYTES} are read"
    content = disk.read(path)
    return None if content is None else decode_epochs(content)
