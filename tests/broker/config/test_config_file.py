"""Files of config/: the bytes that RocketMQ 5.3.3 writes (``data/``, made with its own classes) and ours."""

from pathlib import Path

import pytest

from broker.config.config_file import ConfigFile
from broker.offset.consumer_offsets import ConsumerOffsetTable
from broker.timer.schedule import DelayOffsetTable
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.topic import TopicConfigTable
from sprocket.remoting.codec.pretty_json import pretty

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "topics.json": TopicConfigTable,
    "subscriptionGroup.json": SubscriptionGroupTable,
    "subscriptionGroupPolicies.json": SubscriptionGroupTable,
    "consumerOffset.json": ConsumerOffsetTable,
    "lmqConsumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
}


@pytest.mark.parametrize("name", FILES)
def test_java_file_is_written_back_byte_for_byte(name: str) -> None:
    content = ConfigFile(DATA / name, FILES[name]).load()
    assert pretty(content) == (DATA / name).read_bytes()


def test_values_of_a_java_file() -> None:
    offsets = ConfigFile(DATA / "consumerOffset.json", ConsumerOffsetTable).load()
    assert offsets is not None
    assert offsets.offset_table == {"Orders@CG": {0: 250, 1: 249}}
    assert offsets.data_version.counter == 7


def test_missing_file_is_nothing(tmp_path: Path) -> None:
    assert ConfigFile(tmp_path / "topics.json", TopicConfigTable).load() is None


@pytest.mark.parametrize("torn", [b"", b'{"dataVersion":{"cou', b"\x00" * 40])
def test_backup_stands_in_for_a_torn_file(tmp_path: Path, torn: bytes) -> None:
    file = ConfigFile(tmp_path / "delayOffset.json", DelayOffsetTable)
    file.write(pretty(DelayOffsetTable(offset_table={1: 1})))
    file.write(pretty(DelayOffsetTable(offset_table={1: 2})))
    file.path.write_bytes(torn)
    content = file.load()
    assert content is not None
    assert content.offset_table == {1: 1}


def test_file_and_backup_both_broken_stop_the_start(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "topics.json", TopicConfigTable)
    file.path.write_bytes(b"{")
    (tmp_path / "topics.json.bak").write_bytes(b"[1]")
    with pytest.raises(StoreError, match=r"topics\.json\.bak"):
        file.load()


def test_failed_write_is_reported_and_keeps_the_old_content(tmp_path: Path) -> None:
    failures: list[DiskFailed] = []
    file = ConfigFile(tmp_path / "a" / "topics.json", TopicConfigTable, failures.append)
    (tmp_path / "a").write_bytes(b"a file where a directory is needed")
    with pytest.raises(DiskFailed, match="topics"):
        file.write(b"{}")
    assert len(failures) == 1
