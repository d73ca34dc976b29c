"""The KV configuration and its file."""

import json
from pathlib import Path

import pytest

from namesrv.kv_config import KVConfig, KVConfigNotWritten
from sprocket.common.errors import ConfigError


def loaded(path: Path) -> KVConfig:
    kv_config = KVConfig(path)
    kv_config.load()
    return kv_config


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kvConfig.json"
    kv_config = loaded(path)
    kv_config.put("n", "k", 'v "1" ä')
    kv_config.put("n", "gone", "x")
    kv_config.delete("n", "gone")
    kv_config.delete("n", "never-there")
    assert json.loads(path.read_bytes()) == {"configTable": {"n": {"k": 'v "1" ä'}}}
    again = loaded(path)
    assert again.get("n", "k") == 'v "1" ä'
    assert again.namespace("n") == {"k": 'v "1" ä'}
    assert (again.get("n", "gone"), again.get("m", "k"), again.namespace("m")) == (None, None, None)


def test_the_file_of_the_reference_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"broker-a:4"}}}')
    assert loaded(path).get("ORDER_TOPIC_CONFIG", "T1") == "broker-a:4"


def test_a_file_that_is_none_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":[]}')
    with pytest.raises(ConfigError, match=r"kvConfig\.json: not a KV configuration"):
        loaded(path)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of the directory")
    kv_config = KVConfig(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(KVConfigNotWritten, match="nothing was changed"):
        kv_config.put("n", "k", "v")
    assert kv_config.namespace("n") is None
