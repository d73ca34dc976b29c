"""The KV configuration and its file."""

import json
import threading
from pathlib import Path

import pytest

from namesrv.kv_config import KVConfig, KVConfigNotWritten
from sprocket.common import limits
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.files.config_file import ConfigFile


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
    with pytest.raises(ConfigError, match=r"not a KV configuration: .*kvConfig\.json"):
        loaded(path)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of the directory")
    kv_config = KVConfig(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(KVConfigNotWritten, match="nothing was changed"):
        kv_config.put("n", "k", "v")
    assert kv_config.namespace("n") is None


def test_what_is_beyond_a_limit_is_refused_by_name_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_KV_VALUE_BYTES", 10), ("MAX_KV_NAMESPACE_BYTES", 25), ("MAX_KV_BYTES", 40)):
        monkeypatch.setattr(limits, name, limit)
    kv_config = loaded(tmp_path / "kvConfig.json")
    with pytest.raises(RequestError, match="the key and its value have 11 bytes, the limit is 10"):
        kv_config.put("n", "k", "v" * 10)
    assert kv_config.namespace("n") is None
    kv_config.put("n", "a", "v" * 9)
    kv_config.put("n", "b", "v" * 9)
    with pytest.raises(RequestError, match="the namespace would have 30 bytes, the limit is 25"):
        kv_config.put("n", "c", "v" * 9)
    kv_config.put("n", "b", "w" * 9)  # replaces the value before
    kv_config.put("m", "a", "v" * 9)
    with pytest.raises(RequestError, match="the KV configuration would have 41 bytes, the limit is 40"):
        kv_config.put("o", "a", "v" * 9)
    kv_config.delete("n", "a")
    kv_config.put("o", "a", "v" * 9)
    assert loaded(tmp_path / "kvConfig.json").get("o", "a") == "v" * 9


async def test_puts_that_come_together_share_a_write_and_none_is_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    write = ConfigFile.write

    def counted(file: ConfigFile, content: bytes) -> None:
        threads.append(threading.get_ident())
        write(file, content)

    monkeypatch.setattr(ConfigFile, "write", counted)
    kv_config = loaded(tmp_path / "kvConfig.json")
    kv_config.start()
    for number in range(100):
        kv_config.put("n", f"k{number}", "v")
    await kv_config.save()
    assert len(threads) == 2, "the first put, and all others"
    assert threading.get_ident() not in threads
    await kv_config.stop()
    assert loaded(tmp_path / "kvConfig.json").namespace("n") == {f"k{number}": "v" for number in range(100)}
