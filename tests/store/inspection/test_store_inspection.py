"""A check finds what is wrong, names the place, and writes nothing."""

import random
import shutil
import tarfile
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from store.inspection.finding import Severity
from store.inspection.inspected_store import StoreShape
from store.inspection.store_inspection import StoreInspection
from store.layout import file_name
from tests.store.inspection.stopped_store import (
    MESSAGES,
    SHAPE,
    change,
    check,
    content_of,
    fill,
    kinds,
    record_in,
)
from tests.store.rig import Stores, message

GOLDEN = Path(__file__).resolve().parents[2] / "compat" / "data" / "apache-store-5.3.3.tar.xz"


def flip(at: int) -> object:
    return lambda content: content.__setitem__(at, content[at] ^ 0x10)


def used_slot(content: bytearray) -> None:
    """Change the first slot in use."""
    at = next(at for at in range(40, 2040, 4) if any(content[at : at + 4]))
    content[at + 2] ^= 1


def index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


def test_a_good_store_has_no_findings_and_is_not_changed(stores: Stores) -> None:
    root = fill(stores)
    before = content_of(root)
    store = check(root)
    assert [str(finding) for finding in store.findings.kept] == []
    assert store.figures.records == MESSAGES
    assert store.index.entries > MESSAGES
    assert check(root, quick=True).findings.is_fine
    assert content_of(root) == before


def test_a_store_of_apache_rocketmq_has_no_findings(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    store = StoreInspection(tmp_path / "store").run()
    assert store.findings.is_fine
    assert store.figures.records == 290
    assert store.log.file_bytes == 16384


def test_a_flipped_bit_in_a_body_is_named_with_its_place(stores: Stores) -> None:
    root = fill(stores)
    path, record = record_in(root, 1, 12)
    position = record.physical_offset % SHAPE.segment_bytes
    change(path, flip(position + 90))
    store = check(root)
    assert kinds(store) == {"damage", "queue-lost", "index-unit"}
    found = next(finding for finding in store.findings.kept if finding.kind == "damage")
    assert (found.path, found.offset, found.size_bytes) == (f"commitlog/{path.name}", position, record.size_bytes)
    assert store.findings.worst is Severity.LOSS
    lost = next(finding for finding in store.findings.kept if finding.kind == "queue-lost")
    assert f"{record.topic} queue {record.queue_id}" in lost.text
    assert f"queue offset {record.queue_offset} on" in lost.text
    assert lost.offset == record.queue_offset * 20 % SHAPE.queue_file_bytes


def test_bytes_of_a_body_that_imitate_a_record_are_no_record(stores: Stores) -> None:
    store = stores.open()
    store.append([message(body=b"first")])
    inner = bytes(store.record_at(0))
    # A whole record with a correct CRC, but for another place: after damage it must not count as the next record.
    store.append([message(body=inner * 3)])
    store.append([message(body=b"last")])
    stores.close(store)
    change(stores.segments()[0], flip(len(inner) + 60))
    change(stores.segments()[0], flip(len(inner) + 100))
    found = StoreInspection(stores.root, SHAPE).run()
    assert found.figures.records == 2
    assert [(gap.start, gap.is_closed) for gap in found.gaps] == [(len(inner), True)]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda root: (root / "commitlog" / file_name(16384)).unlink(), {"segment-missing", "queue-lost"}),
        (lambda root: (root / "commitlog" / file_name(1 << 17)).touch(), {"segment-empty"}),
        (lambda root: change(root / "commitlog" / file_name(16384), lambda c: c.extend(b"x" * 9)), {"segment-long"}),
        (
            lambda root: change(root / "commitlog" / file_name(16384), lambda c: c.__delitem__(slice(9000, None))),
            {"segment-short", "damage", "queue-lost"},
        ),
        (lambda root: shutil.rmtree(root / "consumequeue" / "Orders" / "1"), {"queue-absent"}),
        (lambda root: change(root / "consumequeue/Orders/0" / file_name(0), bytearray.clear), {"queue-size"}),
        (lambda root: change(root / "consumequeue/Orders/0" / file_name(0), flip(6)), {"queue-wrong"}),
        (lambda root: change(root / "consumequeue/Orders/0" / file_name(0), flip(17)), {"queue-tags"}),
        (lambda root: change(root / "checkpoint", flip(1)), {"checkpoint"}),
        (lambda root: change(root / "checkpoint", lambda c: c.__delitem__(slice(5, None))), {"checkpoint"}),
        (lambda root: change(index_file(root), flip(39)), {"index-header"}),
        (lambda root: change(index_file(root), used_slot), {"index-slot"}),
        (lambda root: change(index_file(root), flip(40 + 2000 + 45)), {"index-unit", "index-missing"}),
    ],
)  # fmt: skip
def test_damage_is_found_by_kind(stores: Stores, damage: object, expected: set[str]) -> None:
    root = fill(stores)
    damage(root)
    found = kinds(check(root))
    assert expected <= found, found


def test_a_broken_json_is_wrong_with_a_backup_and_a_loss_without(stores: Stores) -> None:
    root = fill(stores)
    config = root / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{}')
    (config / "topics.json.bak").write_text('{"topicConfigTable":{"Orders":{}, "Returns":{}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:999999}}}')
    store = check(root)
    assert [(f.kind, f.severity) for f in store.findings.kept] == [("config", "wrong"), ("offset", "note")]
    (config / "topics.json.bak").unlink()
    assert check(root).findings.worst is Severity.LOSS


def test_an_unfinished_tail_is_wrong_on_a_stopped_store_and_nothing_on_a_running_one(stores: Stores) -> None:
    root = fill(stores)
    store = stores.open()
    end = store.wrote_offset
    path = stores.segments()[-1]
    with path.open("r+b") as file:
        file.seek(end % SHAPE.segment_bytes)
        file.write(b"\0\0\1\0half a record")
    running = check(root)
    assert running.is_running
    assert running.findings.is_fine
    assert running.figures.end == end
    stores.crash(store)
    stopped = check(root)
    assert not stopped.is_running
    assert "tail" in kinds(stopped)
    assert any("was not shut down cleanly" in finding.text for finding in stopped.findings.kept)


def test_a_topic_created_again_is_compared_with_its_last_life(stores: Stores) -> None:
    store = stores.open()
    store.append([message() for _ in range(70)])
    store.delete_topic("Orders")
    store.append([message() for _ in range(5)])
    stores.close(store)
    assert kinds(StoreInspection(stores.root, SHAPE).run()) == set()


def test_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store directory"):
        StoreInspection(tmp_path, StoreShape())


def test_any_bytes_in_any_file_end_without_an_exception(stores: Stores, tmp_path: Path) -> None:
    root = fill(stores)
    work = tmp_path / "work"
    names = sorted(content_of(root))
    for seed in range(20):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root, work)
        choose = random.Random(seed)
        path = work / choose.choice(names)
        content = bytearray(path.read_bytes())
        at = choose.randrange(len(content) + 1)
        match choose.randrange(4):
            case 0 if content:
                content[at % len(content)] ^= 1 << choose.randrange(8)
            case 1:
                del content[at:]
            case 2:
                content[at : at + 4000] = choose.randbytes(min(4000, len(content) - at))
            case _:
                content += choose.randbytes(3000)
        path.write_bytes(content)
        check(work, quick=True)
        check(work)
        StoreInspection(work).run()
