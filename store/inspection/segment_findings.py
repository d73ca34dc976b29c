"""Findings about the log's files and the damage in them."""

from typing import Final

from store.inspection.finding import Severity
from store.inspection.inspected_store import InspectedStore

_PAGE_BYTES: Final = 4096


def describe_files(store: InspectedStore) -> None:
    """Add findings about names, sizes and completeness of the segments."""
    log, findings = store.log, store.findings
    for name in log.strays:
        text = "is not a segment: those are named by 20 digits; Apache RocketMQ does not start with it"
        findings.add("segment-stray", Severity.NOTE, store.relative(log.directory / name), text)
    for part in log.misplaced():
        text = f"its start is not a multiple of the segment size {log.file_bytes}: no broker can use it"
        findings.add("segment-name", Severity.LOSS, store.relative(part.path), text)
    if len(log.parts) == 1 and store.shape.segment_bytes is None and log.file_bytes % _PAGE_BYTES:
        text = f"the only segment has {log.file_bytes} bytes; if it was longer, say so: --segment-bytes, or -c"
        findings.add("segment-size", Severity.NOTE, store.relative(log.parts[0].path), text)
    last_start = log.parts[-1].start if log.parts else 0
    for part in log.wrong_size():
        path = store.relative(part.path)
        if not part.size_bytes and part.start == last_start:
            findings.add("segment-empty", Severity.WRONG, path, "is empty", "remove it", 0, 0)
        elif part.size_bytes < log.file_bytes:
            text = f"has {part.size_bytes} bytes of {log.file_bytes}: a broker refuses to start"
            repair = "make it as long as the others, with zeros"
            findings.add("segment-short", Severity.LOSS, path, text, repair, part.size_bytes)
        else:
            excess = part.size_bytes - log.file_bytes
            text = f"has {excess} bytes more than a segment of {log.file_bytes}: a broker refuses to start"
            findings.add("segment-long", Severity.LOSS, path, text, "keep them aside and cut them off", log.file_bytes)


def describe_damage(store: InspectedStore) -> None:
    """Add findings about gaps between records, and about bytes after the last record."""
    log, findings = store.log, store.findings
    for gap in store.gaps:
        path = store.relative(log.path_at(gap.start))
        position, size = gap.start % log.file_bytes, gap.end - gap.start
        if gap.is_missing:
            repair = "create the file, as a blank that readers skip"
            text = f"is missing: {size} bytes of the log are gone"
            findings.add("segment-missing", Severity.LOSS, path, text, repair, 0, size)
            continue
        repair = "keep the bytes aside and put filler records there; queue offsets stay"
        if not gap.is_closed:
            repair = "keep the bytes aside and close the segment with a blank"
        text = f"{size} bytes are no record at physical offset {gap.start}: {gap.reason}; records follow"
        findings.add("damage", Severity.LOSS, path, text, repair, position, size)
    tail = store.tail
    if tail.end > tail.start and not store.is_running:
        path = store.relative(log.path_at(tail.start))
        text = f"{tail.end - tail.start} bytes after the last record are no record: {tail.reason}"
        if not store.was_clean:
            text += "; the last run was not shut down cleanly, and a broker's start cuts them off"
        repair = "keep them aside and put zeros there"
        findings.add("tail", Severity.WRONG, path, text, repair, tail.start % log.file_bytes, tail.end - tail.start)
