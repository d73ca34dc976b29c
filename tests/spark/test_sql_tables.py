"""Topics as tables: `sprocket spark sql` and `sprocket spark shell`, in this process and with the tests' session."""

import base64
import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sprocket.common.errors import ConfigError
from sprocket_cli.main import main
from sprocket_cli.spark.session import message_of
from tests.spark.store_builder import Row, StoreBuilder

pytestmark = pytest.mark.spark
BINARY = bytes(range(250, 256))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    builder = StoreBuilder(tmp_path_factory.mktemp("sql") / "broker-a" / "store")
    for number in range(60):
        tags = {"TAGS": "ab"[number % 2], "KEYS": f"k{number}"}
        builder.append(Row("Orders", number % 4, f'{{"id": {number}}}'.encode(), tags, store_timestamp=10**12 + number))
        builder.append(Row("%DLQ%group-1", body=BINARY, store_timestamp=10**12 + number))
    builder.append(Row("Case"))
    builder.append(Row("case"))
    builder.write()
    return builder


def sql(query: str, store: StoreBuilder, *words: str) -> Result:
    return CliRunner().invoke(main, ["spark", "sql", query, str(store.root), *words])


def objects(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_table_of_rows_for_eyes(spark_session: Any, store: StoreBuilder) -> None:
    result = sql("select tags, count(*) n, max(storeTimestamp) last from Orders group by tags order by n, tags", store)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "tags   n  last",
        "a     30  2001-09-09T01:46:40.058Z",
        "b     30  2001-09-09T01:46:40.059Z",
    ]
    assert result.stderr.strip() == "(2 rows)"
    result = sql("select body, keys from `%DLQ%group-1`", store, "--limit", "2")
    assert result.stdout.splitlines()[1].split() == ["0xFAFBFCFDFEFF", "NULL"]
    assert result.stderr.strip() == "(2 rows; there are more, see --limit)"


def test_json_and_csv_are_whole(spark_session: Any, store: StoreBuilder) -> None:
    found = objects(sql("select topic, body, body as again, properties from messages", store, "--format", "json"))
    assert Counter(each["topic"] for each in found) == Counter(row.topic for row in store.rows)
    order = next(each for each in found if each["topic"] == "Orders")
    assert base64.b64decode(order["body"]) == b'{"id": 0}' and order["properties"] == {"TAGS": "a", "KEYS": "k0"}
    result = sql("select * from Orders order by physicalOffset", store, "--format", "csv", "--since", str(10**12 + 30))
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["keys"] for row in rows] == [f"k{number}" for number in range(30, 60)]
    assert rows[0]["bodyString"] == '{"id": 30}' and list(rows[0])[:2] == ["topic", "queueId"]
    two = "select a.keys, b.keys from Orders a join Orders b on a.queueOffset = b.queueOffset"
    assert "two columns are called 'keys'" in sql(two, store, "--format", "json").stderr
    assert sql(two, store, "--format", "csv", "--limit", "1").stdout.startswith("keys,keys\n")


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) as n from Orders where queueId = 1",
        "select sum(n) as n from (select 1 as n from Orders where tags = 'a' union select 2 from Orders) where n = 1",
        "select count(*) as n from Orders a join Orders b on a.keys = b.keys and a.queueId = 2 and b.tags = 'a'",
        "select count(*) as n from Orders where keys in (select keys from Orders where queueId = 3)",
        "select count(*) as n from (select * from Orders except select * from Orders where queueId <> 0)",
        "with o as (from Orders) select count(distinct bodyString) as n from o natural join Orders where o.queueId = 0",
        "select count(*) as n from (select * except (body) from Orders) where keys like 'k1%'",
    ],
)
def test_what_is_read_less_changes_no_result(spark_session: Any, store: StoreBuilder, query: str) -> None:
    from spark.sql_tables import SqlTables

    tables = SqlTables(spark_session, [str(store.root)])
    found = tables.query(query, is_run_once=True).collect()
    again = tables.query(query).collect()
    tables.register(tables.named_in(query), tables.columns_in(query))
    assert found == again == spark_session.sql(query).collect()
    assert found[0]["n"] > 0


def test_a_command_is_run_once(spark_session: Any, store: StoreBuilder, tmp_path: Path) -> None:
    from spark.sql_tables import SqlTables

    tables = SqlTables(spark_session, [str(store.root)])
    tables.query(f"create table kept (id int) using parquet location '{tmp_path / 'kept'}'")
    try:
        tables.query("with o as (select queueId from Orders) insert into kept select queueId from o")
        assert spark_session.table("kept").count() == 60
        assert tables.query("with k as (select id from kept) select count(*) as n from k").first()["n"] == 60
    finally:
        spark_session.sql("drop table kept")


def test_a_frame_that_is_filtered_is_whole_the_next_time(spark_session: Any, store: StoreBuilder) -> None:
    """As in the shell: Spark keeps a filter that was pushed down with the frame."""
    from spark.sql_tables import SqlTables

    frame = SqlTables(spark_session, [str(store.root)]).query("select tags, queueId from Orders")
    assert frame.where("tags = 'a'").count() == 30
    assert frame.count() == 60
    assert frame.where("queueId = 1").union(frame.where("queueId = 2")).count() == 30


def test_only_what_is_needed_is_read(spark_session: Any, store: StoreBuilder) -> None:
    from spark.sql_tables import SqlTables

    frame = SqlTables(spark_session, [str(store.root)]).query("select tags from Orders where queueId = 1 limit 3")
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "tags" in plan and "physicalOffset" not in plan and "bodyString" not in plan


@pytest.mark.parametrize(
    ("query", "words", "said"),
    [
        ("select * from Ordrs", (), "there is no table 'Ordrs'; did you mean 'Orders'?"),
        ("select * from Ordrs", (), "Tables: messages, %DLQ%group-1, Case, Orders, case"),
        ("select * from %DLQ%group-1", (), "Put a name like %DLQ%group-1 in backticks: `%DLQ%group-1`"),
        ("select colour from Orders", (), "Did you mean one of the following?"),
        ("select cast(tags as int) from Orders", (), "cannot be cast"),
        ("select * from Case join case", (), "differ only in upper and lower case"),
        ("select 1 from Orders", ("-o", "subscribtion=x"), "unknown option 'subscribtion'"),
        ("select 1 from Orders", ("-o", "mode"), "write NAME=VALUE"),
        ("select 1 from Orders", ("--since", "yesterday"), "neither milliseconds nor an ISO 8601 time"),
    ],
)
def test_errors_are_readable(
    spark_session: Any, store: StoreBuilder, query: str, words: tuple[str, ...], said: str
) -> None:
    result = sql(query, store, *words)
    assert result.exit_code == 2 and result.stdout == ""
    assert said in result.stderr
    assert not any(noise in result.stderr for noise in ("Traceback", "at org.apache", "JVM stack", "RelationV2"))


def test_damage_is_named_with_its_place(spark_session: Any, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(body=b"x" * 50) for _ in range(40))
    builder.patch(builder.rows[5].physical_offset, bytes(20))
    builder.write()
    result = sql("select sum(length(body)) from messages", builder)
    assert result.exit_code == 74 and str(builder.rows[5].physical_offset) in result.stderr
    assert "Traceback" not in result.stderr
    assert sql("select 1", StoreBuilder(tmp_path / "nowhere")).exit_code == 2


def test_tables_are_listed(spark_session: Any, store: StoreBuilder) -> None:
    found = objects(sql("show tables;", store, "--format", "json"))
    assert [each["table"] for each in found] == ["messages", "%DLQ%group-1", "Case", "Orders", "case"]


def test_the_shell_runs_what_a_pipe_says(spark_session: Any, store: StoreBuilder) -> None:
    program = "print(tables[0], table('Orders', 'keys').columns, sql('select count(*) from Orders').first()[0], F.lit)"
    result = CliRunner().invoke(main, ["spark", "shell", str(store.root)], input=program)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("messages ['keys'] 60 <function lit")


def test_the_banner_says_what_there_is() -> None:
    from sprocket_cli.spark.shell import banner

    said = banner("4.3.0", ["messages", *(f"T{number}" for number in range(30))])
    assert "T10 and 19 more" in said and 'table("T0"' in said
    assert banner("4", ["messages"])


def test_a_stack_is_cut_off() -> None:
    told = "Traceback (most recent call last):\n  File ...\nvalueless\nValueError: no such thing\n"
    assert message_of(RuntimeError(told)) == "ValueError: no such thing"
    assert message_of(RuntimeError("[X] bad; line 1 pos 7;\n'Project [*]\n+- x")) == "[X] bad; line 1 pos 7"
    assert message_of(RuntimeError("broken\n\nJVM stacktrace:\norg.x\n\tat a.b(C.java)")) == "broken"


def test_the_report_command_writes_one_page(spark_session: Any, store: StoreBuilder, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["spark", "report", str(store.root), "--out", str(page), "--until", str(10**12 + 10)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("20 messages of 2 topics")
    assert f"Restricted to endingTimestamp {10**12 + 10}." in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    missing = CliRunner().invoke(main, ["spark", "report", str(store.root), "--out", str(tmp_path / "no" / "x.html")])
    assert missing.exit_code == 2 and "there is no directory" in missing.stderr


def test_a_table_that_is_not_there(spark_session: Any, store: StoreBuilder) -> None:
    from spark.sql_tables import SqlTables

    with pytest.raises(ConfigError, match="no table 'x'"):
        SqlTables(spark_session, [str(store.root)]).table("x")


def test_an_option_that_is_refused_though_nothing_is_read(spark_session: Any, store: StoreBuilder) -> None:
    result = sql("select 1", store, "-o", "nope=1")
    assert result.exit_code != 0
    assert "unknown option 'nope'" in result.output
