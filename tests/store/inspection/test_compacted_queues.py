"""A check of compacted queues finds files that are missing, changed or out of order, and messages that are not kept."""

from collections.abc import Callable
from pathlib import Path

import pytest

from store.compaction.manifest import DIRECTORY, Manifest, Part, write_manifest
from store.compaction.merge import Merge, Work
from store.disk.disk import RealDisk
from store.inspection.store_inspection import StoreInspection
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES
from tests.store.compaction.compacting import TOPIC, price
from tests.store.inspection.stopped_store import check
from tests.store.rig import Stores

_KEYS = 5


def compacted(stores: Stores, deletes: bool = False, count: int = 40, past: int = 0) -> Path:
    """A stopped store whose topic was compacted; return the directory of its only compacted queue.

    After `past` messages the compaction ended; 0: after all of them.
    """
    store = stores.open()
    for number in range(count):
        store.append([price(f"k{number % _KEYS}", b"body %d" % number)])
    if deletes:
        store.append([price("k0", b"")])
    config, end = store.config, store.wrote_offset
    stores.close(store)
    directory = config.store_path_root_dir / DIRECTORY / TOPIC / "0"
    directory.mkdir(parents=True)
    work = Work(
        TOPIC, 0, 0, past or count + deletes, end, Manifest(), directory,
        config.store_path_root_dir / "consumequeue" / TOPIC / "0", config.consume_queue_file_bytes,
        config.commit_log_path, config.mapped_file_size_commit_log,
    )  # fmt: skip
    Merge(RealDisk(), work, 1 << 20, 1 << 60, lambda size_bytes: None).run()
    return directory


def found(directory: Path) -> list[tuple[str, str]]:
    inspection: StoreInspection = check(directory.parents[2])
    return [(str(one.severity), one.text) for one in inspection.findings.kept if one.path.startswith(DIRECTORY)]


@pytest.mark.parametrize("deletes", [False, True])
def test_a_good_one_has_no_findings(stores: Stores, deletes: bool) -> None:
    directory = compacted(stores, deletes)
    assert found(directory) == []
    inspection = check(directory.parents[2])
    assert inspection.compacted.records == _KEYS - deletes


def log_of(directory: Path) -> Path:
    (path,) = directory.glob("*.log")
    return path


def changed(directory: Path) -> None:
    content = bytearray(log_of(directory).read_bytes())
    content[100] ^= 1
    log_of(directory).write_bytes(content)


def cut(directory: Path) -> None:
    log_of(directory).write_bytes(log_of(directory).read_bytes()[:50])


def swapped(directory: Path) -> None:
    (path,) = directory.glob("*.queue")
    content = path.read_bytes()
    unit = BATCH_CONSUME_QUEUE_UNIT_BYTES
    path.write_bytes(content[unit : 2 * unit] + content[:unit] + content[2 * unit :])


def emptied(directory: Path) -> None:
    """As if a compaction had lost all messages."""
    (path,) = directory.glob("*.queue")
    part = path.name.removesuffix(".queue")
    first, end = (int(text) for text in part.split("-"))
    write_manifest(RealDisk(), directory, Manifest((Part(part, first, end, 0, 0, 0),)))


@pytest.mark.parametrize(
    ("damage", "severity", "text"),
    [
        (changed, "loss", "CRC"),
        (cut, "loss", "has 50 of"),
        (lambda directory: log_of(directory).unlink(), "loss", "cannot be read"),
        (swapped, "loss", "is not in its order"),
        (emptied, "loss", "the newest message of key b'k0', queue offset 35, is in the log and is not kept"),
        (lambda directory: (directory / "manifest").write_bytes(b"{}"), "loss", "damaged"),
        (lambda directory: (directory / "1-2.log").write_bytes(b"x"), "note", "is in no manifest"),
    ],
    ids=["changed", "cut", "missing", "swapped", "emptied", "manifest", "unnamed"],
)
def test_damage_is_named(stores: Stores, damage: Callable[[Path], object], severity: str, text: str) -> None:
    directory = compacted(stores)
    damage(directory)
    first = found(directory)[0]
    assert first[0] == severity
    assert text.lower() in first[1].lower()
