"""A stopped store with several segments and queues, and ways to damage it."""

from collections.abc import Callable
from pathlib import Path

from sprocket.remoting.message.record import SysFlag
from store.inspection.file_sequence import FileSequence
from store.inspection.inspected_store import StoreShape
from store.inspection.log_inspection import Gap, LogInspection
from store.inspection.store_inspection import StoreInspection
from store.message_store import MessageStore
from store.record.record import Record, decode
from store.repair.repair_journal import Action
from store.repair.repair_plan import plan
from tests.store.reading import records_of
from tests.store.rig import Stores, message

SHAPE = StoreShape(segment_bytes=16 * 1024, queue_file_bytes=20 * 50, index_slots=500, index_units=2_000)
MESSAGES = 240


# Files that `fill` wrote the first time: copying files is faster than running a store.
_filled: dict[str, bytes] = {}


def fill(stores: Stores) -> Path:
    """Write `MESSAGES` messages to two topics of three queues, close the store; return its root."""
    if _filled:
        for name, content in _filled.items():
            path = stores.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        stores.clock.advance(0.05 * MESSAGES)
        return stores.root
    store = stores.open()
    for number in range(MESSAGES):
        stores.clock.advance(0.05)
        store.append(
            [
                message(
                    "Orders" if number % 2 else "Returns", number % 3, b"body %d " % number * (number % 9),
                    tag=f"t{number % 4}", properties=b"KEYS\x01k%d all\x02" % number,
                    sys_flag=int(SysFlag.TRANSACTION_PREPARED) if number % 20 == 7 else 0,
                )
            ]
        )  # fmt: skip
    stores.close(store)
    _filled.update(content_of(stores.root))
    return stores.root


def check(root: Path, *, quick: bool = False) -> StoreInspection:
    """Return the result of a check."""
    return StoreInspection(root, SHAPE, quick=quick).run()


def check_and_plan(
    root: Path, *, rebuild_queues: str | None = None, rebuild_index: bool = False
) -> tuple[StoreInspection, list[Action]]:
    """Return a whole check, and the plan of its repair."""
    store = check(root)
    return store, plan(store, rebuild_queues=rebuild_queues, rebuild_index=rebuild_index)


def kinds(store: StoreInspection) -> set[str]:
    """Return the kinds of its findings that are more than notes."""
    return {finding.kind for finding in store.findings.kept if finding.severity != "note"}


def content_of(root: Path) -> dict[str, bytes]:
    """Return every file below `root` except those of repairs."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.relative_to(root).parts[0].startswith("repair-")
    }


def change(path: Path, alter: Callable[[bytearray], object]) -> None:
    """Let `alter` change the content of a file."""
    content = bytearray(path.read_bytes())
    alter(content)
    path.write_bytes(content)


def messages_of(store: MessageStore) -> dict[tuple[str, int, int], bytes]:
    """Return every message that a consumer can read, by topic, queue and queue offset."""
    found = {}
    for topic, queue_id in store.queues():
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            result = store.get(topic, queue_id, offset, 32, 1 << 20)
            for record in records_of(result.slices):
                found[topic, queue_id, record.queue_offset] = bytes(record.body)
            offset = max(result.next_offset, offset + 1)
    return found


def record_in(root: Path, segment: int, number: int) -> tuple[Path, Record]:
    """Return the `number`-th record of the `segment`-th segment, and that segment's file."""
    files = FileSequence(root / "commitlog")
    part = files.parts[segment]
    for found in LogInspection(files, part.start, part.start + files.file_bytes):
        if isinstance(found, Gap):
            continue
        position = int(found.positions[number])
        record = decode(found.data[position : position + int(found.sizes[number])])
        assert isinstance(record, Record)
        return part.path, record
    raise AssertionError("no record")
