"""Index files of Apache RocketMQ open here, and ours are the same bytes.

``data/apache-index-5.3.3.tar.xz`` was written by ``IndexTool write <root> 37 200 360`` with the jars of RocketMQ
5.3.3; its answers.txt is what ``IndexTool search <root> 37 200 questions.txt`` then printed.
"""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.compat import maven

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "apache-index-5.3.3.tar.xz"
TOOL = Path(__file__).resolve().parents[1] / "java" / "store" / "IndexTool.java"
# The day on which it was written.
NOW_MS = 1_795_300_000_000
SLOTS, UNITS = 37, 200


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def open_store(root: Path) -> MessageStore:
    config = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=16384,
        mapped_file_size_consume_queue=1000,
        max_hash_slot_num=SLOTS,
        max_index_num=UNITS,
    )
    store = MessageStore(config, clock=ManualClock(NOW_MS), notify=lambda run: run())
    store.start()
    return store


def contents(index: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(index.iterdir())]


def check_answers(store: MessageStore, golden: Path, answers: list[str]) -> None:
    """Our answers to the questions, their order included, are those of RocketMQ."""
    questions = (golden / "questions.txt").read_text().splitlines()
    assert len(questions) == len(answers) > 600
    for question, answer in zip(questions, answers, strict=True):
        topic, key, most, begin, end = question.split("\t")
        found = store.index.search(topic, key, int(most), int(begin), int(end))
        _, offsets, timestamp, physical_offset = answer.split("\t")
        assert found.offsets == [int(offset) for offset in offsets.split()], question
        assert (found.last_update_timestamp, found.last_update_physical_offset) == (
            int(timestamp),
            int(physical_offset),
        )


def answers_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("FOUND\t")]


def test_what_we_write_is_byte_for_byte_what_apache_rocketmq_writes(golden: Path) -> None:
    theirs = contents(golden / "store" / "index")
    shutil.rmtree(golden / "store" / "index")
    open_store(golden / "store").shutdown()
    assert contents(golden / "store" / "index") == theirs
    assert len(theirs) == 4


def test_an_index_of_apache_rocketmq_answers_here_as_there(golden: Path) -> None:
    before = contents(golden / "store" / "index")
    store = open_store(golden / "store")
    check_answers(store, golden, answers_in((golden / "answers.txt").read_text()))
    store.shutdown()
    assert contents(golden / "store" / "index") == before, "nothing was missing"


@pytest.mark.java
@pytest.mark.timeout(300)
def test_our_index_answers_in_apache_rocketmq_as_here(golden: Path, java: None) -> None:
    root = golden / "store"
    shutil.rmtree(root / "index")
    open_store(root).shutdown()
    copy = golden / "theirs" / "store"
    shutil.copytree(root, copy)
    command = [
        *maven.short_java(), "-Dfile.encoding=UTF-8", f"-Duser.home={copy.parent}", "-cp",
        maven.compiled(TOOL, maven.apache_classpath()), TOOL.stem,
        "search", str(copy), str(SLOTS), str(UNITS), str(golden / "questions.txt"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    store = open_store(root)
    check_answers(store, golden, answers_in(done.stdout))
    store.shutdown()
