"""Every number of a report is what a plain count of the same records gives."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark.files.store_directory import find_stores
from spark.report import topic_kinds
from spark.report.committed import committed_lags
from spark.report.findings import PERCENTILES, Buckets, Findings, Latency
from spark.report.log_queries import MAX_STEPS, buckets_between
from spark.report.page import store_page
from spark.report.survey import DRAWN, REST, survey
from spark.report.texts import bytes_text, duration_text, size_class, step_text
from spark.report.topic_kinds import TopicKind, kind_of
from tests.spark.store_builder import Row, StoreBuilder

START_MS = 1_780_000_000_000
TRACE = "RMQ_SYS_TRACE_TOPIC"
# Messages that `sprocket dlq redrive` sent again 77 s after their birth.
REDRIVEN = (13, 111)


def shop_rows() -> list[Row]:
    """Twelve topics, retries, dead letters, traces of two groups, and check points of a third, over 15 minutes."""
    rows = []
    for number in range(360):
        stored = START_MS + number * 2_700
        properties = {"UNIQ_KEY": f"ID{number:030d}", "TAGS": "ABC"[number % 3], "KEYS": f"k{number % 40} all"}
        if number % 50 == 0:
            properties = {"UNIQ_KEY": f"ID{number:030d}", "REAL_TOPIC": "T0"}
        if number in REDRIVEN:
            properties["REDRIVEN_FROM"] = "0A000002"
        topic = f"T{min(number % 24, number % 13)}"
        born = stored - number % 90 + (5 if number == 101 else 0) * 1000 - (77_000 if number in REDRIVEN else 0)
        row = Row(topic, number % 4, b"x" * (number * 7 % 3000), properties, born, stored)
        rows.append(row)
        if number % 2 == 0:
            rows.append(Row(TRACE, body=trace(number, stored), born_timestamp=stored, store_timestamp=stored + 300))
        if number % 20 == 1:
            retry = {**properties, "RETRY_TOPIC": topic}
            rows.append(Row("%RETRY%billing", 0, b"r", retry, born, stored + 400))
            if number % 40 == 1:
                rows.append(Row("%DLQ%billing", 0, b"d", retry, born, stored + 500))
        if number % 12 == 5:
            point = {"so": number // 24 * 2, "d": [0, 1], "n": 2, "t": "T0", "c": "poppers", "q": 0, "pt": stored}
            body, tag = json.dumps(point).encode(), {"TAGS": "ck"}
            rows.append(Row("rmq_sys_REVIVE_LOG_C", 0, body, tag, stored, stored + 600))
    rows.append(Row("SCHEDULE_TOPIC_XXXX", 2, b"later", {"REAL_TOPIC": "T0"}, START_MS, START_MS))
    return sorted(rows, key=lambda row: row.store_timestamp)


def trace(number: int, stored: int) -> bytes:
    contexts = []
    for group, wait in (("billing", 700), ("audit", 90_000)):
        request = f"{group}-{number}"
        message = f"ID{number:030d}" if number % 44 else "GONE"
        done = "false" if number % 10 == 4 else "true"
        contexts.append(("SubBefore", stored + wait + number, "R", group, request, message, 0, "k"))
        contexts.append(("SubAfter", request, message, number % 17, done, "k", 0, stored, group))
    return "".join("\x01".join(map(str, context)) + "\x02" for context in contexts).encode()


def write(root: Path, rows: Iterable[Row]) -> StoreBuilder:
    builder = StoreBuilder(root)
    builder.extend(rows)
    builder.write()
    return builder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    builder = write(tmp_path_factory.mktemp("shop") / "store", shop_rows())
    (builder.root / "config").mkdir()
    table = {"T0@billing": {0: 3, 1: 0}, "T1@billing": {0: 10**6}, "T0@CID_RMQ_SYS_X": {0: 0}, "none": {0: 1}}
    (builder.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return builder


@pytest.fixture(scope="module")
def findings(spark_session: Any, shop: StoreBuilder) -> Findings:
    return survey(spark_session, [str(shop.root)])


def applications(shop: StoreBuilder) -> list[Row]:
    return [row for row in shop.rows if row.topic.startswith("T")]


def latency(name: str, values: list[int]) -> Latency:
    return Latency(name, len(values), tuple(np.percentile(values, [100 * p for p in PERCENTILES])), float(max(values)))


def same(found: Latency | None, expected: Latency) -> bool:
    return (
        found is not None
        and (found.name, found.messages, found.largest) == (expected.name, expected.messages, expected.largest)
        and found.percentiles == pytest.approx(expected.percentiles)
    )


def test_totals(findings: Findings, shop: StoreBuilder) -> None:
    counts = Counter(row.topic for row in shop.rows)
    assert {each.topic: each.messages for each in findings.topics} == counts
    assert [each.messages for each in findings.topics] == sorted(counts.values(), reverse=True)
    for each in findings.topics:
        rows = [row for row in shop.rows if row.topic == each.topic]
        assert each.body_bytes == sum(len(row.body) for row in rows)
        assert (each.first_ms, each.last_ms) == (rows[0].store_timestamp, rows[-1].store_timestamp)
    [broker] = findings.brokers
    assert broker.messages == findings.messages == len(shop.rows)
    assert sum(each.store_bytes for each in findings.topics) == broker.store_bytes
    assert findings.sizes == Counter(len(row.body).bit_length() for row in applications(shop))


def test_traffic(findings: Findings, shop: StoreBuilder) -> None:
    rows = applications(shop)
    largest = sorted(Counter(row.topic for row in rows).items(), key=lambda each: (-each[1], each[0]))
    drawn = {topic for topic, _ in largest[:DRAWN]}
    assert len(largest) > DRAWN + 1 and findings.traffic.keys() == drawn | {REST}
    expected: defaultdict[str, Counter[int]] = defaultdict(Counter)
    start, step = findings.buckets.start_s, findings.buckets.step_s
    for row in rows:
        expected[row.topic if row.topic in drawn else REST][(row.store_timestamp // 1000 - start) // step] += 1
    assert step == 60
    found = {name: {at: count for at, count in enumerate(counts) if count} for name, counts in findings.traffic.items()}
    assert found == expected


def test_latency_to_the_store(findings: Findings, shop: StoreBuilder) -> None:
    assert findings.latency.redriven == len(REDRIVEN)
    at_once = [row for row in applications(shop) if not {"REAL_TOPIC", "REDRIVEN_FROM"} & row.properties.keys()]
    values = [row.store_timestamp - row.born_timestamp for row in at_once]
    found = findings.latency
    assert found.held_back == len(applications(shop)) - len(at_once) - len(REDRIVEN) == 8
    assert max(values) < 77_000
    assert same(found.overall, latency("all topics", values))
    assert found.negative == sum(value < 0 for value in values) == 1
    for each in found.by_topic:
        times = [row.store_timestamp - row.born_timestamp for row in at_once if row.topic == each.name]
        assert same(each, latency(each.name, times))
    steps: defaultdict[int, list[int]] = defaultdict(list)
    for row, value in zip(at_once, values, strict=True):
        steps[findings.buckets.index(row.store_timestamp)].append(value)
    expected = [(at, *np.percentile(some, [50, 99]), float(max(some))) for at, some in sorted(steps.items())]
    assert [step for step, *_ in found.by_step] == sorted(steps)
    assert np.allclose([each[1:] for each in found.by_step], [each[1:] for each in expected])


def test_the_page_says_what_latency_leaves_out(findings: Findings) -> None:
    html = store_page(findings, START_MS).html()
    assert "Left out: 2 redriven dead letters; a redriven message keeps its first bornTimestamp." in html
    assert "Left out: 8 messages delayed, timed or in a transaction." in html


def test_a_store_without_a_message_beside_others(
    spark_session: Any, shop: StoreBuilder, findings: Findings, tmp_path: Path
) -> None:
    """A master that started and was never sent a message has no log."""
    unused = tmp_path / "broker-b" / "store"
    (unused / "config").mkdir(parents=True)
    (unused / "config" / "topics.json").write_text("{}")
    both = survey(spark_session, [f"broker-a={shop.root}", str(unused)])
    assert (both.messages, both.latency) == (findings.messages, findings.latency)
    assert [each.broker for each in both.brokers] == ["broker-a"]
    assert any(str(unused) in store for store in both.stores)
    alone = survey(spark_session, [str(unused)])
    assert alone.messages == 0
    assert "The log holds no message." in store_page(alone, START_MS).html()


def test_hot_tags_and_keys(findings: Findings, shop: StoreBuilder) -> None:
    tags = Counter((row.topic, row.tags) for row in applications(shop) if row.tags)
    keys = Counter((row.topic, key) for row in applications(shop) for key in set((row.keys or "").split()))
    for hot, counts in ((findings.tags, tags), (findings.keys, keys)):
        assert (hot.different, hot.messages) == (len(counts), sum(counts.values()))
        expected = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[: len(hot.top)]
        assert [((each.topic, each.value), each.messages) for each in hot.top] == expected
    top = findings.tags.top[0]
    bodies = [row.body for row in shop.rows if (row.topic, row.tags) == (top.topic, top.value)]
    assert top.body_bytes == sum(map(len, bodies))


def test_retries_and_dead_letters(findings: Findings, shop: StoreBuilder) -> None:
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in shop.rows:
        if row.topic.startswith("%"):
            counts[row.properties["RETRY_TOPIC"]][row.topic == "%DLQ%billing"] += 1
    assert {each.origin: [each.retries, each.dead_letters] for each in findings.failures} == counts
    assert {each.group for each in findings.failures} == {"billing"}
    for found, topic in ((findings.retries, "%RETRY%billing"), (findings.dead_letters, "%DLQ%billing")):
        steps = Counter(findings.buckets.index(row.store_timestamp) for row in shop.rows if row.topic == topic)
        assert found == {"billing": [steps[step] for step in range(findings.buckets.count)]}


def test_consumption_by_the_trace(findings: Findings, shop: StoreBuilder) -> None:
    by_id = {row.properties["UNIQ_KEY"]: row for row in applications(shop)}
    traced, buckets = findings.traced, findings.buckets
    assert traced is not None
    taken: defaultdict[str, dict[str, int]] = defaultdict(dict)
    costs: defaultdict[str, list[int]] = defaultdict(list)
    failures: Counter[str] = Counter()
    for row in shop.rows:
        if row.topic == TRACE:
            for context in row.body.decode().split("\x02")[:-1]:
                field = context.split("\x01")
                if field[0] == "SubBefore":
                    known = taken[field[3]].setdefault(field[5], int(field[1]))
                    taken[field[3]][field[5]] = min(known, int(field[1]))
                else:
                    costs[field[8]].append(int(field[3]))
                    failures[field[8]] += field[4] == "false"
    assert traced.not_in_log == 2  # one message that is gone, for two groups
    for each in traced.groups:
        mine = [(by_id[message], at) for message, at in taken[each.group].items() if message in by_id]
        assert same(each.latency, latency(each.group, [at - row.born_timestamp for row, at in mine]))
        assert same(each.cost, latency(each.group, costs[each.group]))
        assert (each.attempts, each.failures) == (len(costs[each.group]), failures[each.group])
        waiting = [
            sum(buckets.index(row.store_timestamp) <= step < buckets.index(at) for row, at in mine)
            for step in range(buckets.count)
        ]
        assert traced.waiting[each.group] == waiting
    assert max(traced.waiting["audit"]) > 5


def test_lag_of_pops(findings: Findings, shop: StoreBuilder) -> None:
    buckets = findings.buckets
    stored = [buckets.index(row.store_timestamp) for row in shop.rows if (row.topic, row.queue_id) == ("T0", 0)]
    points = [json.loads(row.body) for row in shop.rows if row.topic.startswith("rmq_sys_REVIVE")]
    expected: list[int | None] = []
    for step in range(buckets.count):
        popped = [point["so"] + 2 for point in points if buckets.index(point["pt"]) <= step]
        is_known = popped and step <= max(buckets.index(point["pt"]) for point in points)
        end = sum(at <= step for at in stored)
        expected.append(max(0, end - max(popped)) if is_known else None)
    assert findings.popped == {"poppers on T0": expected}


def test_lag_now(findings: Findings, shop: StoreBuilder) -> None:
    ends = Counter((row.topic, row.queue_id) for row in shop.rows)
    first = next(row for row in shop.rows if (row.topic, row.queue_id, row.queue_offset) == ("T0", 0, 3))
    others = [row for row in shop.rows if (row.topic, row.queue_id) == ("T0", 1)]
    oldest = min([first.store_timestamp, *(row.store_timestamp for row in others)])
    found = {(each.group, each.topic): (each.lag, each.oldest_ms) for each in findings.lags}
    assert found == {
        ("billing", "T0"): (ends["T0", 0] - 3 + ends["T0", 1], oldest),
        ("billing", "T1"): (0, None),
    }


def test_the_figures_at_the_top_say_what_they_count_and_add_up(findings: Findings, shop: StoreBuilder) -> None:
    facts = store_page(findings, START_MS).facts
    of_applications, retries, dead_letters, own = (
        int(facts[name].replace(",", ""))
        for name in ("messages of applications", "retries", "dead letters", "records of the broker's own topics")
    )
    assert of_applications == len(applications(shop))
    assert retries == sum(row.topic.startswith("%RETRY%") for row in shop.rows) > 0
    assert dead_letters == sum(row.topic.startswith("%DLQ%") for row in shop.rows) > 0
    assert facts["records in the log, of all kinds"] == f"{of_applications + retries + dead_letters + own:,}"


def test_the_page_shows_the_numbers_and_needs_no_network(findings: Findings, shop: StoreBuilder) -> None:
    html = store_page(findings, START_MS).html()
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", html) and "@import" not in html and "<script" not in html
    assert all(alt.strip() for alt in re.findall(r'<img [^>]*alt="([^"]*)"', html))
    assert html.count("<img ") == 7
    rest = sum(findings.traffic[REST])
    for said in (f"{len(shop.rows):,}", "T0", "UTC", f"{rest:,} messages", "%RETRY%billing", "poppers on T0"):
        assert said in html
    for title in ("Messages per topic and minute", "Sizes of bodies", "Hottest keys", "Dead letters over time"):
        assert title in html


def test_an_empty_store_and_one_message(spark_session: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty" / "store"
    (empty / "commitlog").mkdir(parents=True)
    (empty / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    found = survey(spark_session, [str(empty)])
    assert found.messages == 0 and "The log holds no message" in store_page(found, START_MS).html()
    one = write(tmp_path / "one" / "store", [Row("T<b>&", body=b"", born_timestamp=-1, properties={"TAGS": "$x$"})])
    found = survey(spark_session, [str(one.root)])
    html = store_page(found, START_MS).html()
    assert (found.messages, found.sizes, found.latency.without_time) == (1, {0: 1}, 1)
    assert "T&lt;b&gt;&amp;" in html and "T<b>" not in html


def test_a_thousand_topics_are_drawn_as_a_few(spark_session: Any, tmp_path: Path) -> None:
    for port, broker in enumerate("ab"):
        rows = [Row(f"_topic-{number}", store_port=port) for number in range(1000) for _ in range(1 + (number < 3))]
        write(tmp_path / broker / "store", rows)
    found = survey(spark_session, [str(tmp_path / "*" / "store")])
    assert len(found.brokers) == 2 and len(found.topics) == 1000
    assert sum(found.traffic[REST]) == 2 * (1003 - 6 - (DRAWN - 3)) and len(found.traffic) == DRAWN + 1
    html = store_page(found, START_MS).html()
    assert "980 smaller topics" in html and "of 1,000 topics" in html and len(html) < 1_500_000


def test_kinds_of_topics() -> None:
    assert kind_of("rmq_sys_wheel_timer") is TopicKind.SYSTEM
    assert kind_of("Cluster_REPLY_TOPIC") is TopicKind.SYSTEM
    assert [kind_of(name) for name in ("TBW102", "TBW1024", "Orders")] == [
        TopicKind.SYSTEM,
        TopicKind.APPLICATION,
        TopicKind.APPLICATION,
    ]
    assert topic_kinds.group_of("%RETRY%g+Orders") == "g"


@pytest.mark.parametrize(
    ("span_ms", "step_s"),
    [(0, 1), (299_000, 1), (301_000, 5), (3_600_000, 60), (86_400_000, 300), (10**11, 172_800), (2 * 10**14, None)],
)
def test_steps_hold_the_whole_time(span_ms: int, step_s: int | None) -> None:
    buckets = buckets_between(START_MS, START_MS + span_ms)
    assert step_s in (None, buckets.step_s)
    assert 0 <= buckets.index(START_MS) <= 1 and buckets.index(START_MS + span_ms) == buckets.count - 1
    assert buckets.count <= MAX_STEPS + 1 and len(buckets.starts) == buckets.count


def test_committed_offsets_that_cannot_be_had(tmp_path: Path) -> None:
    [store] = find_stores([str(write(tmp_path / "store", [Row()]).root)])
    assert committed_lags(store) == ([], "store: there is no config/consumerOffset.json") or committed_lags(store)[1]
    (tmp_path / "store" / "config").mkdir()
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text("{")
    lags, why = committed_lags(store)
    assert lags == [] and "cannot be read" in (why or "")


def test_lag_on_a_topic_that_keeps_batches_as_one_record(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for count in (3, 20, 7):
        stored_ms = START_MS + 1000 * len(builder.rows)
        builder.append_batch(Row("Batched", 1, b"b", store_timestamp=stored_ms), count)
    builder.write()
    (builder.root / "config").mkdir()
    table = {"Batched@billing": {1: 4}, "Batched@done": {1: 30}, "Gone@billing": {0: 4}, "../up@billing": {0: 4}}
    (builder.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    [store] = find_stores([str(builder.root)])
    found = {(each.group, each.topic): (each.lag, each.oldest_ms) for each in committed_lags(store)[0]}
    assert found == {
        ("billing", "Batched"): (26, START_MS + 1000),
        ("done", "Batched"): (0, None),
        ("billing", "Gone"): (0, None),
        ("billing", "../up"): (0, None),
    }


def test_damage_that_is_read_as_rows_is_not_counted(spark_session: Any, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row("T", body=b"x" * 50) for _ in range(20))
    builder.patch(builder.rows[5].physical_offset, bytes(20))
    builder.write()
    found = survey(spark_session, [str(builder.root)], {"mode": "PERMISSIVE"})
    assert [(each.topic, each.messages) for each in found.topics] == [("T", 19)]


def test_texts() -> None:
    assert [duration_text(ms) for ms in (3, 1500, 61_000, 3_600_000, 90_000_000)] == [
        "3 ms", "1.5 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip
    assert [bytes_text(size) for size in (5, 2048, 3 << 40, 5 << 50)] == ["5 bytes", "2.0 KiB", "3.0 TiB", "5120.0 TiB"]
    assert [size_class(bits) for bits in (0, 1, 2, 10, 11, 21, 31)] == [
        "0", "1", "2–3", "512–1023", "1–2 KiB", "1–2 MiB", "1–2 GiB",
    ]  # fmt: skip
    assert [step_text(step) for step in (1, 5, 60, 300, 86_400)] == [
        "second",
        "5 seconds",
        "minute",
        "5 minutes",
        "day",
    ]
    assert Buckets(100, 10, 2).index(115_999) == 1
