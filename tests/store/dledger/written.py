"""DLedger's files as RocketMQ writes them, made from the records of a store."""

import struct
from pathlib import Path

from store.dledger.conversion import records_of
from store.inspection.file_sequence import FileSequence
from store.layout import file_name

HEAD = struct.Struct(">iiqqqiiii")
FILE_BYTES = 16 * 1024


def entry(number: int, term: int, position: int, record: bytes) -> bytes:
    return HEAD.pack(1, HEAD.size + len(record), number, term, position, 0, 0, 0, len(record)) + record


def write_entries(folder: Path, records: list[bytes], *, begin: int = 0, terms: int = 3) -> list[int]:
    """Write files of `FILE_BYTES` from position `begin` on; return the position of each entry.

    Every leader begins with an entry without a body.
    """
    data = folder / "data"
    data.mkdir(parents=True)
    content = bytearray()
    positions = []
    bodies = []
    for number, record in enumerate(records):
        if number % (len(records) // terms + 1) == 0:
            bodies.append(b"")
        bodies.append(record)
    term = 0
    for number, body in enumerate(bodies):
        term += not body
        room = FILE_BYTES - len(content) % FILE_BYTES
        if HEAD.size + len(body) + 8 > room:
            content += struct.pack(">ii", -1, room).ljust(room, b"\0")
        positions.append(begin + len(content))
        content += entry(number, term, begin + len(content), body)
    content += bytes(-len(content) % FILE_BYTES)
    for at in range(0, len(content), FILE_BYTES):
        (data / file_name(begin + at)).write_bytes(content[at : at + FILE_BYTES])
    return positions


def records_in(root: Path) -> list[bytes]:
    """Return the records of a store's log, with the physical offset 0."""
    found = []
    for _, record in records_of(FileSequence(root / "commitlog")):
        plain = bytearray(record)
        plain[28:36] = bytes(8)
        found.append(bytes(plain))
    return found
