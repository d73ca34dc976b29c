"""`sprocket store import` of RocketMQ's tiered storage: a directory that RocketMQ's own classes wrote.

``apache-tier-5.3.3.tar.xz`` has the messages of ``apache-store-5.3.3.tar.xz`` but those of a batch queue, written by
TierTool with the jars of RocketMQ 5.3.3 in files of 3,000 bytes.  Those of 5.5.1 write the same bytes.
"""

import json
import tarfile
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from store.dledger.conversion import records_of
from store.inspection.file_sequence import FileSequence
from store.record.record import Record, decode
from store.tier.flat_files import broker_folder
from tests.compat.directories.test_store_files import DATA
from tests.sprocket_cli.store.test_import_dledger import sprocket

SEGMENT_BYTES = 1 << 20
Key = tuple[str, int, int]


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    for name in ("apache-tier-5.3.3", "apache-store-5.3.3"):
        with tarfile.open(DATA / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
    return tmp_path / "tier"


def told(record: Record) -> tuple[object, ...]:
    return (
        bytes(record.body), bytes(record.properties), record.flag, record.sys_flag, record.born_timestamp,
        record.store_timestamp, record.born_host, record.store_host, record.reconsume_times,
    )  # fmt: skip


def messages_in(root: Path) -> dict[Key, tuple[object, ...]]:
    found: dict[Key, tuple[object, ...]] = {}
    for _, content in records_of(FileSequence(root / "commitlog")):
        record = decode(content)
        assert isinstance(record, Record)
        if record.in_consume_queue:
            found[record.topic, record.queue_id, record.queue_offset] = told(record)
    return found


def imported(source: Path, new: Path, *options: str) -> dict[str, object]:
    done = sprocket("import", source, "--to", new, "--segment-bytes", SEGMENT_BYTES, "--json", *options)
    assert done.exit_code == 0, done.output
    said: dict[str, object] = json.loads(done.stdout)
    return said


def only_queue(tier: Path) -> Path:
    return tier / "212d6b50_DefaultCluster" / "broker-a" / "Golden-0" / "0" / "COMMIT_LOG"


@pytest.mark.parametrize("place", ["", "212d6b50_DefaultCluster", "212d6b50_DefaultCluster/broker-a"])
def test_messages_keep_queue_offset_times_and_hosts(tier: Path, tmp_path: Path, place: str) -> None:
    new = tmp_path / "new"
    assert imported(tier / place, new)["messages"] == 246
    original, found = messages_in(tmp_path / "store"), messages_in(new)
    assert len(found) == 246
    assert {key: original[key] for key in found} == found
    assert {topic for topic, _, _ in original.keys() - found.keys()} <= {"BatchQueue"}
    checked = sprocket("check", new)
    assert checked.exit_code == 0, checked.output
    topics = json.loads((new / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["Golden-0"]["readQueueNums"] == 3


def test_a_dry_run_writes_nothing_and_a_store_is_not_overwritten(tier: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert imported(tier, new, "--dry-run")["messages"] == 246
    assert not new.exists()
    imported(tier, new)
    again = sprocket("import", tier, "--to", new)
    assert again.exit_code != 0
    assert "holds a store already" in again.output


def test_what_is_missing_is_told_and_what_is_damaged_is_refused_by_name(tier: Path, tmp_path: Path) -> None:
    first, second, third = sorted(only_queue(tier).iterdir(), key=lambda path: path.name[8:])
    cut = third.read_bytes()
    third.write_bytes(cut[:-5])  # the last write did not end
    second.unlink()
    done = sprocket("import", tier, "--to", tmp_path / "new", "--segment-bytes", SEGMENT_BYTES)
    assert done.exit_code == 0, done.output
    assert "messages in Golden-0 queue 0: they are not in the files" in done.output
    content = bytearray(first.read_bytes())
    content[90] ^= 1  # in the first body
    first.write_bytes(content)
    done = sprocket("import", tier, "--to", tmp_path / "other", "--segment-bytes", SEGMENT_BYTES)
    assert done.exit_code != 0
    assert str(first) in done.output


def test_of_several_brokers_one_is_to_be_named(tier: Path) -> None:
    cluster = tier / "212d6b50_DefaultCluster"
    (cluster / "broker-b" / "T" / "0" / "COMMIT_LOG").mkdir(parents=True)
    with pytest.raises(StoreError, match="has several brokers: name one of"):
        broker_folder(tier)
    assert broker_folder(cluster / "broker-a") == cluster / "broker-a"
    assert broker_folder(tier.parent / "store") is None
