"""`sprocket store ...` as an operator types it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from docs.pages.format_page import page
from sprocket_cli.main import main
from store.config.store_config import StoreConfig
from store.layout import file_name
from store.message_store import MessageStore
from tests.store.inspection.stopped_store import MESSAGES, change, content_of, fill, messages_of, record_in
from tests.store.rig import Stores

ROOT = Path(__file__).resolve().parents[3]
VISIBLE = MESSAGES - MESSAGES // 20


def sprocket(*words: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    return fill(Stores(tmp_path / "store"))


def damage(root: Path) -> None:
    path, record = record_in(root, 1, 12)
    at = record.physical_offset % (16 * 1024) + 90
    change(path, lambda content: content.__setitem__(at, content[at] ^ 1))


def config_file(root: Path) -> Path:
    path = root.parent / "broker.conf"
    path.write_text(
        "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=500\nmaxIndexNum=2000\n"
    )
    return path


def test_check_and_repair_from_damage_to_nothing_wrong(filled: Path) -> None:
    options = ("-c", config_file(filled))
    assert sprocket("check", filled, *options).exit_code == 0
    damage(filled)
    before = content_of(filled)
    checked = sprocket("check", filled, *options, "--json")
    assert checked.exit_code == 1
    document = json.loads(checked.stdout)
    assert document["ok"] is False
    assert {finding["kind"] for finding in document["findings"]} == {"damage", "queue-lost", "index-unit"}
    said = sprocket("repair", filled, *options)
    assert said.exit_code == 1
    assert "nothing was changed" in said.stdout
    assert content_of(filled) == before
    done = sprocket("repair", filled, *options, "--yes")
    assert done.exit_code == 0, done.output
    assert "a check now finds nothing wrong" in done.stdout
    assert sprocket("check", filled, *options).stdout.splitlines()[-1] == "nothing is wrong"
    [folder] = filled.glob("repair-*")
    assert json.loads((folder / "journal.json").read_text())["state"] == "done"
    assert sprocket("repair", filled, *options, "--undo", folder.name, "--yes").exit_code == 0
    assert content_of(filled) == before
    assert sprocket("repair", filled, *options, "--undo", folder.name, "--yes").exit_code == 74


def test_a_store_in_use_is_checked_and_not_repaired(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "store")
    root = fill(stores)
    store = stores.open()
    checked = json.loads(sprocket("check", root, "--json", "-c", config_file(root)).stdout)
    assert (checked["ok"], checked["inUse"]) == (True, True)
    refused = sprocket("repair", root, "--yes")
    assert refused.exit_code == 2
    assert "a broker uses this store" in refused.stderr
    stores.close(store)


@pytest.mark.parametrize("command", ["check", "repair", "dump", "stat", "export"])
def test_what_is_no_store_is_wrong_usage_without_a_traceback(tmp_path: Path, command: str) -> None:
    for directory in (tmp_path, tmp_path / "nothing"):
        ended = sprocket(command, directory)
        assert ended.exit_code == 2
        assert "is no store directory" in ended.stderr


def test_dump_filters(filled: Path) -> None:
    everything = lines(sprocket("dump", filled))
    assert len(everything) == MESSAGES
    assert [line["physicalOffset"] for line in everything] == sorted(int(str(r["physicalOffset"])) for r in everything)
    sixth = everything[6]
    assert sixth["flags"] == []
    assert everything[7]["flags"] == ["TRANSACTION_PREPARED"]
    assert lines(sprocket("dump", filled, "--offset", sixth["physicalOffset"])) == [sixth]
    place = ("--topic", sixth["topic"], "--queue", sixth["queueId"], "--queue-offset", sixth["queueOffset"])
    assert lines(sprocket("dump", filled, *place)) == [sixth]
    assert [line["keys"] for line in lines(sprocket("dump", filled, "--key", "k33"))] == [["k33", "all"]]
    tagged = lines(sprocket("dump", filled, "--tag", "t1", "--body", "none"))
    assert len(tagged) == MESSAGES // 4
    assert "body" not in tagged[0]
    begin, end = everything[100]["storeTimestamp"], everything[110]["storeTimestamp"]
    assert lines(sprocket("dump", filled, "--from-time", begin, "--to-time", end)) == everything[100:110]
    begin, end = everything[50]["physicalOffset"], everything[53]["physicalOffset"]
    assert lines(sprocket("dump", filled, "--from-offset", begin, "--to-offset", end)) == everything[50:53]
    assert lines(sprocket("dump", filled, "--max", 3)) == everything[:3]
    assert sprocket("dump", filled, "--offset", 5).exit_code == 1


def test_dump_goes_on_behind_damage_and_says_so(filled: Path) -> None:
    damage(filled)
    ended = sprocket("dump", filled)
    assert len(lines(ended)) == MESSAGES - 1
    assert "are damaged and were skipped" in ended.stderr


def test_stat_counts(filled: Path) -> None:
    counted = json.loads(sprocket("stat", filled, "--json").stdout)
    assert counted["records"] == MESSAGES
    assert counted["uncommitted"] == MESSAGES - VISIBLE
    topics = counted["topics"]
    assert sum(topic["messages"] for topic in topics.values()) == VISIBLE
    assert topics["Orders"]["tags"] == 2
    assert topics["Orders"]["keys"] == topics["Orders"]["messages"] + 1
    assert set(topics["Returns"]["queues"]) == {"0", "1", "2"}
    table = sprocket("stat", filled).stdout
    assert "Orders" in table
    assert "queue" in sprocket("stat", filled, "--topic", "Orders").stdout.splitlines()[0]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_export_comes_back_as_it_was(filled: Path, tmp_path: Path, suffix: str) -> None:
    file, copy = tmp_path / f"all{suffix}", tmp_path / "copy"
    assert sprocket("export", filled, "-o", file).exit_code == 0
    assert json.loads(sprocket("import", file, "--to", copy, "--dry-run", "--json").stdout)["messages"] == VISIBLE
    assert not copy.exists()
    done = sprocket("import", file, "--to", copy, "--segment-bytes", 65536)
    assert done.exit_code == 0, done.output
    assert set(json.loads((copy / "config" / "topics.json").read_text())["topicConfigTable"]) == {"Orders", "Returns"}
    new = ("queueOffset", "physicalOffset", "sizeBytes", "storeTimestamp", "storeHost", "properties")

    def told(root: Path) -> list[dict[str, object]]:
        shown = [line for line in lines(sprocket("dump", root)) if line["inConsumeQueue"]]
        return [{name: value for name, value in line.items() if name not in new} for line in shown]

    assert told(copy) == told(filled)
    assert json.loads(sprocket("check", copy, "--json").stdout)["ok"]


def test_an_import_into_a_store_appends(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    sprocket("export", filled, "-o", file, "--topic", "Orders", "--max", 5)
    done = sprocket("import", file, "--to", filled, "-c", config_file(filled))
    assert done.exit_code == 0, done.output
    config = StoreConfig(
        store_path_root_dir=filled, mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=1000
    )
    store = MessageStore(config, clock=Stores(filled).clock, notify=lambda run: run())
    store.start()
    assert len(messages_of(store)) == VISIBLE + 5
    store.shutdown()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "2"),
        ('{"topic":"T"}', "queueId"),
        ('{"topic":"T","queueId":"x","bornTimestamp":1,"body":""}', "queueId"),
        ('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"?"}', "body"),
        ('{"topic":"../T","queueId":0,"bornTimestamp":1,"body":""}', "topic"),
        (f'{{"topic":"{"T" * 256}","queueId":0,"bornTimestamp":1,"body":""}}', "topic"),
        (f'{{"topic":"T","queueId":0,"bornTimestamp":1,"body":"{"AAAA" * 1_400_000}"}}', "maxMessageSize"),
        ('{"topic":"T","queueId":-1,"bornTimestamp":1,"body":""}', "queueId"),
        ('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"","bornHost":"here"}', "host"),
        ('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"","properties":{"a":"b\\u0001"}}', "property"),
        ('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"","more":1}', "more"),
    ],
)
def test_a_malformed_row_is_named_with_its_line_and_nothing_is_imported(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"aGk="}\n' + line + "\n")
    ended = sprocket("import", file, "--to", tmp_path / "new")
    assert ended.exit_code == 1
    assert f"{file}:2: " in ended.stderr
    assert complaint in ended.stderr
    assert not (tmp_path / "new").exists()


def test_an_import_makes_files_of_the_sizes_that_the_broker_is_configured_with(tmp_path: Path) -> None:
    file, root = tmp_path / "rows.jsonl", tmp_path / "new"
    file.write_text('{"topic":"T","queueId":0,"bornTimestamp":1,"body":"aGk=","properties":{"KEYS":"k"}}\n')
    config = config_file(root)
    assert sprocket("import", file, "--to", root, "-c", config).exit_code == 0
    checked = sprocket("check", root, "-c", config)
    assert checked.exit_code == 0, checked.output
    assert "index files: 1" in checked.stdout


def test_a_row_that_fits_no_segment_is_refused_before_the_first_is_written(tmp_path: Path) -> None:
    file, root = tmp_path / "rows.jsonl", tmp_path / "new"
    row = '{{"topic":"T","queueId":0,"bornTimestamp":1,"body":"{}"}}\n'
    file.write_text(row.format("aGk=") + row.format("AAAA" * 6000))
    ended = sprocket("import", file, "--to", root, "-c", config_file(root))
    assert (ended.exit_code, root.exists()) == (1, False)
    assert ended.stderr.startswith(f"Error: {file}:2: the record would have 18")


def test_a_larger_maxmessagesize_lets_larger_messages_in(tmp_path: Path) -> None:
    file, config = tmp_path / "rows.jsonl", tmp_path / "broker.conf"
    file.write_text(f'{{"topic":"T","queueId":0,"bornTimestamp":1,"body":"{"AAAA" * 1_400_000}"}}\n')
    config.write_text("mappedFileSizeCommitLog=8388608\nmaxMessageSize=5000000\nmaxHashSlotNum=500\nmaxIndexNum=2000\n")
    ended = sprocket("import", file, "--to", tmp_path / "new", "-c", config)
    assert ended.exit_code == 0, ended.output


def test_queues_that_the_broker_does_not_know_are_made_readable(tmp_path: Path) -> None:
    file, root = tmp_path / "rows.jsonl", tmp_path / "new"
    for queue_id in (1, 5, 0):
        file.write_text(f'{{"topic":"T","queueId":{queue_id},"bornTimestamp":1,"body":"aGk="}}\n')
        assert sprocket("import", file, "--to", root, "-c", config_file(root)).exit_code == 0
    topic = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]["T"]
    assert (topic["readQueueNums"], topic["writeQueueNums"]) == (6, 2)


def test_the_page_of_the_format_is_up_to_date() -> None:
    assert (ROOT / "docs" / "format.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_an_unreadable_segment_is_no_traceback(filled: Path) -> None:
    segment = filled / "commitlog" / file_name(16384)
    segment.unlink()
    segment.mkdir()
    for command in ("check", "dump", "stat", "export", "repair"):
        ended = sprocket(command, filled)
        assert ended.exit_code in (0, 1), (command, ended.output)
        assert ended.exception is None or isinstance(ended.exception, SystemExit)
