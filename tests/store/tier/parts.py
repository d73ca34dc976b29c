"""Parts of a store's log as the uploader gives them to the writer, and readings of what it wrote."""

from collections.abc import Callable
from itertools import pairwise

from store.message_store import MessageStore
from store.record.record import TagsCodes
from store.tier.segment_object import TRAILER, Footer, LogBlock, open_block, open_footer
from store.tier.segment_writer import LogPart, SegmentWriter, Written
from tests.store.insides import commit_log_of


def part_at(store: MessageStore, start: int, end: int | None = None) -> LogPart:
    """Return the part from `start` to `end`, at most to the end of the file or of the log."""
    log = commit_log_of(store)
    file_end = log.segment_end(start)
    return LogPart(start, min(file_end if end is None else end, log.wrote_offset), file_end)


def write(
    store: MessageStore, part: LogPart, keeps: Callable[[str], bool] = lambda topic: True, **limits: int
) -> tuple[bytes, Written]:
    """Return the object of `part`, and what the writer says of it."""
    log = commit_log_of(store)

    def read(offset: int, size_bytes: int) -> bytes:
        found = log.slice_at(offset, size_bytes)
        return b"" if found is None else bytes(found)

    writer = SegmentWriter(part, read, keeps, TagsCodes(store.config.message_delay_level), **limits)
    content = b"".join(writer)
    return content, writer.written


def footer_of(content: bytes) -> Footer:
    """Return the footer, found by the trailer as a tool without a manifest finds it."""
    _, size_bytes = TRAILER.unpack(content[-TRAILER.size :])
    return open_footer(content[-TRAILER.size - size_bytes :], len(content))


def log_block(content: bytes, block: LogBlock) -> bytes:
    """Return one log block as a ranged read gives it."""
    place = block.block
    return open_block(place, content[place.position : place.position + place.size_bytes])


def log_of(content: bytes) -> bytes:
    """Return the whole log in an object."""
    footer = footer_of(content)
    assert all(before.end == after.start for before, after in pairwise(footer.log))
    return b"".join(log_block(content, block) for block in footer.log)
