"""`sprocket store import` of a directory of RocketMQ's DLedger mode."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sprocket_cli.main import main
from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from tests.store.dledger.written import FILE_BYTES, records_in, write_entries
from tests.store.inspection.stopped_store import fill, messages_of
from tests.store.rig import Stores


def sprocket(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A broker's directory in DLedger mode, and beside it the same store in the ordinary mode."""
    plain = fill(Stores(tmp_path / "plain"))
    root = tmp_path / "source"
    write_entries(root / "dledger-n0", records_in(plain))
    (root / "config").mkdir()
    for name, content in (("topics.json", "{}"), ("consumerOffset.json", '{"offsetTable":{}}'), ("timercheck", "x")):
        (root / "config" / name).write_text(content)
    return root


def opened(root: Path) -> MessageStore:
    config = StoreConfig(
        store_path_root_dir=root, mapped_file_size_commit_log=FILE_BYTES, mapped_file_size_consume_queue=1000
    )
    store = MessageStore(config, clock=Stores(root).clock, notify=lambda run: run())
    store.start()
    return store


@pytest.mark.parametrize("name", ["", "dledger-n0"])
def test_messages_keep_their_queues_and_offsets(source: Path, tmp_path: Path, name: str) -> None:
    new = tmp_path / "new"
    done = sprocket("import", source / name, "--to", new, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["messages"] == sum(said["topics"].values()) == 240
    checked = sprocket("check", new)
    assert checked.exit_code == 0, checked.output
    plain, store = opened(tmp_path / "plain"), opened(new)
    assert messages_of(store) == messages_of(plain)
    assert len(messages_of(store)) > 200
    plain.shutdown()
    store.shutdown()
    assert sorted(path.name for path in (new / "config").iterdir()) == [
        "consumerOffset.json",
        "timercheck",
        "topics.json",
    ]


def test_records_from_before_dledger_mode_come_first(source: Path, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "plain" / "commitlog", source / "commitlog")
    new = tmp_path / "new"
    assert json.loads(sprocket("import", source, "--to", new, "--dry-run", "--json").stdout)["messages"] == 480
    assert not new.exists()


def test_a_dry_run_writes_nothing(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    done = sprocket("import", source, "--to", new, "--dry-run")
    assert done.stdout == "240 messages of 2 topics could be imported\n"
    assert not new.exists()


def test_wrong_directories_are_refused_by_name(source: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for wanted, new, reason in (
        (empty, tmp_path / "new", "no folder dledger-..."),
        (source, source, "name a new directory"),
        (source, tmp_path / "plain", "holds a store already (commitlog)"),
    ):
        ended = sprocket("import", wanted, "--to", new)
        assert ended.exit_code == 2
        assert reason in ended.stderr
    shutil.copytree(source / "dledger-n0", source / "dledger-n1")
    ended = sprocket("import", source, "--to", tmp_path / "new")
    assert "it holds dledger-n0, dledger-n1: name the folder of one broker" in ended.stderr


def test_damage_is_named_and_says_what_to_do(source: Path, tmp_path: Path) -> None:
    first = min((source / "dledger-n0" / "data").iterdir())
    content = bytearray(first.read_bytes())
    content[2000] ^= 1
    first.write_bytes(content)
    ended = sprocket("import", source, "--to", tmp_path / "new")
    assert ended.exit_code == 1
    assert f"remove {tmp_path / 'new'} before you try again" in ended.stderr
