"""`sprocket spark backfill`, `tables` and `compact`, and the process that a broker keeps beside itself."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark.tables.declaration import TableFormat, read_declarations
from sprocket.client.message import Message
from sprocket.common.errors import ConfigError
from sprocket.sync import Producer
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.reading import read_table
from tests.sprocket_cli.programs import BROKER_FLAGS, run, server

TABLES = """
tables:
  - topic: Kept
    to: kept
    format: delta
    body: {type: json, schema: "n int"}
    intervalSeconds: 0.1
    compactFiles: 8
"""


def until(condition: Callable[[], bool], said: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)


def test_backfill_and_compact(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(body=b'{"n":%d}' % n if n else b"junk") for n in range(20))
    builder.write()
    (builder.root / "config").mkdir()
    (builder.root / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')
    table = str(tmp_path / "table")
    command = ["spark", "backfill", str(builder.root), "--topic", "T", "--to", table, "--body", "json"]
    done = run(tmp_path, *command, "--schema", "n int", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 19 and json.loads(done.stdout)["deadLetters"] == 1
    refused = run(tmp_path, *command, "--schema", "n string")
    assert refused.returncode == 2 and "'n' is int32 in the table and declared as string" in refused.stderr
    builder.extend([Row(body=b'{"n":20}')])
    builder.write()
    assert "1 messages of T" in run(tmp_path, *command, "--schema", "n int").stdout
    assert "2 files compacted; 1 files now" in run(tmp_path, "spark", "compact", table).stdout
    assert [row["n"] for row in read_table(TableFormat.PARQUET, Path(table))] == list(range(1, 21))
    misspelt = run(tmp_path, "spark", "backfill", str(builder.root), "--topic", "t", "--to", str(tmp_path / "other"))
    assert misspelt.returncode == 0 and "no store has the topic 't'; did you mean 'T'?" in misspelt.stderr
    builder.append_batch(Row("Batched"), 1)
    builder.write()
    batched = run(tmp_path, "spark", "backfill", str(builder.root), "--topic", "Batched", "--to", str(tmp_path / "b"))
    assert batched.returncode == 0 and "Warning" not in batched.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: []", "one key, tables"),
        ("tables: [{topic: A}]", "table 1: to is missing"),
        ("tables: [{topic: A, to: x, formt: delta}]", "did you mean 'format'"),
        ("tables: [{topic: A, to: x, format: csv}]", "one of parquet, delta, iceberg"),
        ("tables: [{topic: A, to: x, body: jsn}]", "did you mean 'json'"),
        ("tables: [{topic: A, to: x, body: json}]", "needs a schema"),
        ("tables: [{topic: A, to: x, body: {type: json, schema: 'tags int'}}]", "give the body's fields a prefix"),
        ("tables: [{topic: 'A b', to: x}]", "not allowed"),
        ("tables: [{topic: A, to: x}, {topic: B, to: x}]", "the place of table 1"),
        ("tables: [{topic: A, to: x, columns: [keys]}]", "columns must have brokerName"),
        ("tables: [{topic: A, to: x, intervalSeconds: soon}]", "is a number of at least"),
        ("tables: [", "while parsing"),
    ],
)
def test_a_bad_file_of_tables_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tables.yml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_declarations(tmp_path / "tables.yml")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from spark.tables.formats.delta_table import open_delta

    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"delta needs the Python package deltalake.*sprocket-mq\[spark\]"):
        open_delta(tmp_path, "T", None, True)


def test_a_broker_with_a_bad_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "tables.yml").write_text("tables: [{topic: A, to: x, format: csv}]")
    setting = ("--set", f"tableTopicsConfigPath={tmp_path / 'tables.yml'}")
    refused = run(tmp_path, "standalone", "--port", "0", "--namesrv-port", "0", *BROKER_FLAGS, *setting)
    assert refused.returncode == 2
    assert "tableTopicsConfigPath: " in refused.stderr and "one of parquet, delta, iceberg" in refused.stderr


def test_a_broker_keeps_a_table_through_kills_of_both(tmp_path: Path) -> None:
    """SIGKILL of the process that keeps the table, then of the broker: every message is in the table once."""
    (tmp_path / "tables.yml").write_text(TABLES)
    settings = (
        *BROKER_FLAGS, "--store", str(tmp_path / "store"), "--port", "0", "--namesrv-port", "0",
        "--set", f"tableTopicsConfigPath={tmp_path / 'tables.yml'}",
    )  # fmt: skip
    table = tmp_path / "kept"
    sent = 0

    def rows() -> int:
        return len(read_table(TableFormat.DELTA, table)) if (table / "_delta_log").exists() else 0

    def send(facts: object, count: int) -> None:
        nonlocal sent
        with Producer("senders", str(facts)) as producer:
            messages = [Message("Kept", b'{"n":%d}' % n) for n in range(sent, sent + count)]
            assert len(list(producer.send_many(messages))) == count
        sent += count

    def keeper(log: Path) -> int:
        return int(re.findall(r"event=process_started name=tables pid=(\d+)", log.read_text())[-1])

    with server(tmp_path, "standalone", *settings) as broker:
        log = broker.log
        send(broker.facts["namesrvAddr"], 300)
        until(lambda: rows() > 0, log.read_text)
        killed = keeper(log)
        os.kill(killed, signal.SIGKILL)
        send(broker.facts["namesrvAddr"], 300)
        until(lambda: keeper(log) != killed, log.read_text)
        until(lambda: rows() >= 301, log.read_text)
        second = keeper(log)
        send(broker.facts["namesrvAddr"], 200)
        broker.stop(signal.SIGKILL)
        until(lambda: not Path(f"/proc/{second}").exists())  # it does not outlive its broker
    with server(tmp_path, "standalone", *settings) as broker:
        send(broker.facts["namesrvAddr"], 100)
        until(lambda: rows() >= sent, broker.log.read_text)
        assert broker.stop() == 0
    found = read_table(TableFormat.DELTA, table)
    stored = read_rows(tmp_path / "store", topics=frozenset({"Kept"}))
    assert [row["physicalOffset"] for row in found] == sorted(row["physicalOffset"] for row in stored)
    assert sorted(row["n"] for row in found) == list(range(sent))
    assert {row["brokerName"] for row in found} == {"broker-a"}
