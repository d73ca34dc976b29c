"""What is wrong with a node's log and queues at the end of a run."""

from itertools import pairwise

from store.record.record import Record, decode
from tests.sim.cluster.group import Group, Node
from tests.sim.cluster.profile import TOPIC
from tests.sim.cluster.sim_schedules import FIRES, MISSED_MS, PERIOD_MS
from tests.sim.script import read_log

_BLANK = 0xCBD43194


def check_group(group: Group, node: Node) -> list[str]:
    """Compare with what the group promises; a slave also with its master, byte by byte."""
    broker, master = node.broker, group.master
    if broker is None or master.broker is None or not broker.is_serving or not master.broker.is_serving:
        return []
    start, end = broker.store.master_log().min_offset, broker.end_offset
    content = _content(node, start, end)
    problems: list[str] = []
    if node is not master:
        start_there = master.broker.store.master_log().min_offset
        common = max(start, start_there)
        if content[common - start :] != _content(master, common, end):
            problems.append(f"{node.name} differs from its master between {common} and {end}")
    records, words = _records(content, start, group.profile.segment_bytes)
    problems += words
    problems += _check_queues(node, records)
    if node is master:
        problems += _check_promises(group, records, start)
    return [f"{group.name}: {problem}" for problem in problems]


def is_copy(group: Group, node: Node) -> bool:
    """Whether a slave's log is its master's, as far as it goes."""
    broker, master = node.broker, group.master.broker
    if broker is None or master is None:
        return False
    start = max(broker.store.master_log().min_offset, master.store.master_log().min_offset)
    return _content(node, start, broker.end_offset) == _content(group.master, start, broker.end_offset)


def _content(node: Node, start: int, end: int) -> bytes:
    assert node.broker is not None
    segment = node.broker.store.config.mapped_file_size_commit_log
    read = read_log(node.machine.disk, segment)
    parts = []
    while start < end:
        size = min(segment - start % segment, end - start)
        parts.append(read(start, size))
        start += size
    return b"".join(parts)


def _records(content: bytes, start: int, segment: int) -> tuple[list[Record], list[str]]:
    """Every record of the log from `start` on, which is the begin of a segment."""
    view = memoryview(content)
    records: list[Record] = []
    at = 0
    while at < len(view):
        size, magic = int.from_bytes(view[at : at + 4], "big"), int.from_bytes(view[at + 4 : at + 8], "big")
        if magic == _BLANK:
            at += segment - (start + at) % segment
            continue
        record = decode(view[at : at + size]) if size else "no record"
        if isinstance(record, str):
            return records, [f"the log is damaged at {start + at}: {record}"]
        if record.physical_offset != start + at:
            return records, [f"the record at {start + at} says {record.physical_offset}"]
        records.append(record)
        at += size
    return records, []


def _check_queues(node: Node, records: list[Record]) -> list[str]:
    """Whether the queues say what the log says."""
    assert node.broker is not None
    store = node.broker.store
    queues: dict[int, list[Record]] = {}
    for record in records:
        queues.setdefault(record.queue_id, []).append(record)
    problems = []
    for queue_id, expected in queues.items():
        offsets = [record.queue_offset for record in expected]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            problems.append(f"{node.name}: the offsets of queue {queue_id} in the log are {offsets}")
            continue
        bounds = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
        if bounds[1] != offsets[-1] + 1 or bounds[0] > offsets[0]:
            problems.append(f"{node.name}: queue {queue_id} has {bounds}, the log {offsets[0]} to {offsets[-1]}")
            continue
        for record in expected:
            entry = store.entry(TOPIC, queue_id, record.queue_offset)
            if entry is None or entry[:2] != (record.physical_offset, record.size_bytes):
                problems.append(f"{node.name}: queue {queue_id} has {entry} at {record.queue_offset}")
                break
    return problems


def _check_promises(group: Group, records: list[Record], start: int) -> list[str]:
    problems = []
    by_place = {record.physical_offset: record for record in records}
    for acked in group.acked:
        record = by_place.get(acked.physical_offset)
        if record is None:
            if acked.physical_offset >= start:
                problems.append(f"{acked.body[:20]!r} was answered SEND_OK and is not at {acked.physical_offset}")
        elif (bytes(record.body), record.queue_id, record.queue_offset) != (
            acked.body, acked.queue_id, acked.queue_offset
        ):  # fmt: skip
            problems.append(f"{acked.body[:20]!r} was answered SEND_OK, at its place is {bytes(record.body[:20])!r}")
    places = {(record.queue_id, record.queue_offset): bytes(record.body) for record in records}
    for (queue_id, offset), seen in group.seen.items():
        if not seen.from_slave and places.get((queue_id, offset), seen.body) != seen.body:
            problems.append(f"a consumer has seen {seen.body[:20]!r} at {offset} of queue {queue_id}")
    return problems + _check_order(records) + _check_fires(records)


def _check_fires(records: list[Record]) -> list[str]:
    """No fire time is left out unless it was missed by more than a minute; `_check_order` finds what comes twice."""
    fires = [
        (int(bytes(record.body[len(FIRES) + 1 :]).partition(b"|")[0]), record.store_timestamp)
        for record in records
        if record.body.tobytes().startswith(FIRES + b"-")
    ]
    for (before, _), (after, stored_ms) in pairwise(fires):
        skipped = range(before + PERIOD_MS, after, PERIOD_MS)
        if skipped and stored_ms - skipped[-1] <= MISSED_MS:
            return [f"the schedule fires at {after} after {before}, stored at {stored_ms}"]
    return []


def _check_order(records: list[Record]) -> list[str]:
    """A producer sends one batch after the other: nothing of it overtakes."""
    last: dict[tuple[bytes, int], bytes] = {}
    for record in records:
        name = bytes(record.body[: record.body.tobytes().find(b"|")])
        key = name.partition(b"-")[0], record.queue_id
        if last.get(key, b"") >= name:
            return [f"{name!r} comes behind {last[key]!r}"]
        last[key] = name
    return []
