"""Pure parts: what blocks a group, charts, sessions, words."""

from collections.abc import Iterator
from typing import Any

import pytest

from dashboard.access import is_proved
from dashboard.asking.cluster import ClusterAnswers
from dashboard.asking.groups import GroupAnswers
from dashboard.page import BadInput
from dashboard.sampling.chart import begin_of, chart, nice_top, span_words
from dashboard.sampling.history import MAX_BROKERS, MAX_MEMBERS, Counts, History, counts_of, point_between
from dashboard.security.sessions import Sessions
from dashboard.views.cluster import cluster_map
from dashboard.views.groups import STUCK_MS, group_page
from dashboard.views.messages import hex_lines, message_page, reason_of, timeline
from dashboard.views.offsets import preview_rows
from dashboard.views.quotas import quota_rows
from dashboard.views.refusals import nearest, refusal_of
from dashboard.views.slices import slice_of
from dashboard.views.words import duration, number, size
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.cluster_health import ClusterLook, Seen
from sprocket.client.errors import NameServerUnreachable, TopicNotFound
from sprocket.client.message import ReceivedMessage
from sprocket.client.trace.encoding import TraceKind, TraceRecord
from sprocket.client.trace.lookup import Found
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.client import Connection, ConsumerConnection, MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, ProcessQueueInfo
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.bodies.quota import Quota, QuotaUse
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo
from sprocket.remoting.bodies.stats import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    OffsetWrapper,
    TopicOffset,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.message.properties import encode

NOW_MS = 1_000_000_000
QUEUES = [MessageQueue("T", "a", n) for n in range(2)]


def running(subscription: str, held: dict[MessageQueue, ProcessQueueInfo]) -> ConsumerRunningInfo[str]:
    return ConsumerRunningInfo[str](
        subscription_set=[SubscriptionData("T", subscription)],
        mq_table={dumps(queue).decode(): info for queue, info in held.items()},
    )


def answers(told: dict[str, ConsumerRunningInfo[str]], lag: int, *, enabled: bool = True) -> GroupAnswers:
    config = SubscriptionGroupConfig("g", consume_enable=enabled)
    members = ConsumerConnection([Connection(client, "1.2.3.4:5", "PYTHON", 479) for client in told])
    return GroupAnswers(
        {"a": SubscriptionGroupTable({"g": config})},
        {"a": {queue: OffsetWrapper(10 + lag, 10, 10, 0) for queue in QUEUES}},
        {"a": members},
        dict(told),
    )


def obstacles(told: dict[str, ConsumerRunningInfo[str]], lag: int = 5, *, enabled: bool = True) -> list[str]:
    return list(group_page("g", answers(told, lag, enabled=enabled), NOW_MS).obstacles)


def test_what_blocks_a_group() -> None:
    works = ProcessQueueInfo(cached_msg_count=3, last_consume_timestamp=NOW_MS - 10)
    stuck = ProcessQueueInfo(cached_msg_count=3, last_consume_timestamp=NOW_MS - STUCK_MS)
    idle = ProcessQueueInfo(cached_msg_count=0, last_consume_timestamp=NOW_MS - STUCK_MS)
    both = dict.fromkeys(QUEUES, works)
    assert obstacles({"c": running("*", both)}) == []
    assert obstacles({"c": running("*", dict.fromkeys(QUEUES, idle))}) == []
    assert obstacles({}, lag=0) == []
    (absent,) = obstacles({})
    assert "10 messages wait" in absent
    (free,) = obstacles({"c": running("*", {QUEUES[0]: works})})
    assert "No consumer has taken T queue 1 of a" in free
    (slow,) = obstacles({"c": running("*", {QUEUES[0]: stuck, QUEUES[1]: works})})
    assert "c has 3 messages of T, queue 0" in slow and "1 min" in slow
    (mixed,) = obstacles({"c": running("x", {QUEUES[0]: works}), "d": running("y", {QUEUES[1]: works})})
    assert "subscribe differently" in mixed and "c has T: x; d has T: y" in mixed
    (off,) = obstacles({"c": running("*", both)}, enabled=False)
    assert "consumeEnable=false" in off


def member(slaves: list[HAConnectionRuntimeInfo], *, is_master: bool = True) -> HARuntimeInfo:
    return HARuntimeInfo(
        master=is_master,
        in_sync_slave_nums=sum(one.in_sync for one in slaves),
        ha_connection_info=slaves,
        ha_client_runtime_info=HAClientRuntimeInfo(master_addr="1:2", max_offset=1024, master_flush_offset=3072),
    )


def test_map_of_a_cluster_with_slaves() -> None:
    info = ClusterInfo(
        {"a": BrokerData("c", "a", {0: "m:1", 1: "s:1"}), "b": BrokerData("c", "b", {1: "s:2"})}, {"c": ["b", "a"]}
    )
    behind = HAConnectionRuntimeInfo("9:9", 0, 2048, False, 10)
    look = ClusterLook(
        info,
        {"m:1": {"putTps": "2.5 1 1", "commitLogDiskRatio": "0.95", "bootTimestamp": "x"}, "s:1": {"putTps": "nan"},
         "s:2": AdminError("timeout")},
        {"m:1": member([behind]), "s:1": member([], is_master=False)},
    )  # fmt: skip
    answers = ClusterAnswers({"n:1": AdminError("no connection")}, look)
    found = cluster_map(answers, [Seen("a", 2, "s:3", NOW_MS)], NOW_MS)
    assert (found.replicas, found.gone) == (4, 2)
    assert [(row.name, row.role, row.replication) for row in found.brokers] == [
        ("a", "master", "0 of 1 connected slaves in sync"), ("a", "slave", "follows 1:2, 2.0 KiB behind"),
        ("b", "slave", ""),
    ]  # fmt: skip
    assert found.put_per_s == 2.5
    problems = [one.what for one in found.problems]
    parts = (
        "b: sends fail: the group has no master",
        "a: 1 of 3 replicas gone since",
        "b: 1 of 1 replica gone: s:2 (no answer: timeout)",
        "a: slave 9:9 is not in sync",
        "Name server n:1",
        "full to 95%",
    )
    assert len(problems) == len(parts)
    assert all(part in problem for part, problem in zip(parts, problems, strict=True)), problems


def test_rates_of_samples() -> None:
    before, now = Counts(1000, 5, 100, 40, 1.0, None), Counts(3000, 5, 160, 40, 2.0, None)
    point = point_between(before, now)
    assert point is not None and (point.put_per_s, point.got_per_s, point.put_p99_ms) == (30.0, 0.0, 2.0)
    quiet = point_between(now, Counts(5000, 5, 160, 50, 0.0, 0.0))
    assert quiet is not None and (quiet.put_per_s, quiet.put_p99_ms, quiet.put_p999_ms) == (0.0, None, None)
    assert point_between(now, before) is None
    assert point_between(before, Counts(3000, 6, 160, 40, 2.0, None)) is None
    assert counts_of({"msgPutTotalTodayNow": "x", "msgGetTotalTodayNow": "1"}, 0) is None


def test_history_is_bounded() -> None:
    history = History(60.0)
    for minute in range(200):
        for broker in range(MAX_BROKERS + 5):
            history.add(f"b{broker}", Counts(minute * 60_000, 1, minute, 0, None, None))
    points = history.points()
    assert len(points) == MAX_BROKERS and {len(one) for one in points.values()} == {61}
    history.forget_before(198 * 60_000)
    assert {len(one) for one in history.points().values()} == {2}
    history.forget_before(300 * 60_000)
    assert history.points() == {}


def test_history_remembers_when_brokers_last_answered() -> None:
    history = History(60.0)
    info = ClusterInfo({"a": BrokerData("c", "a", {0: "m:1", 1: "s:1"})}, {"c": ["a"]})
    history.saw(info, {"m:1": {}, "s:1": {}}, 1)
    history.saw(info, {"m:1": {}, "s:1": AdminError("timeout")}, 2)
    assert sorted(history.members, key=lambda one: one.address) == [Seen("a", 0, "m:1", 2), Seen("a", 1, "s:1", 1)]
    history.forget("s:1")
    assert [one.address for one in history.members] == ["m:1"]
    for port in range(MAX_MEMBERS):
        each = ClusterInfo({"b": BrokerData("c", "b", {0: f"h:{port}"})}, {"c": ["b"]})
        history.saw(each, {f"h:{port}": {}}, 3)
    assert len(history.members) == MAX_MEMBERS and "m:1" not in {one.address for one in history.members}


def test_charts_interrupt_lines_at_gaps() -> None:
    series = {"b": [(0, 1.0), (10, 2.0), (500, 3.0), (510, 4.0), (900, 5.0)]}
    made = chart("t", "u", series, 0, 1000, 50)
    (line,) = made.lines
    assert (len(line.parts), len(line.dots), line.last) == (2, 1, 5.0)
    assert made.rows[-1][1] == "10"
    assert chart("t", "u", {}, 0, 1000, 50).is_empty
    assert chart("t", "u", {f"b{n}": [(1, float(n))] for n in range(9)}, 0, 10, 5).left_out == 3


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.4), (1, 1), (1.1, 2), (5, 10), (99, 100), (101, 200)])
def test_tops_of_charts(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


def test_charts_begin_where_points_do() -> None:
    minute = 60_000
    assert begin_of(99 * minute, 100 * minute) == 96 * minute
    assert begin_of(90 * minute, 100 * minute) == 88 * minute
    assert begin_of(0, 100 * minute) == 40 * minute
    assert span_words(96 * minute, 100 * minute) == "last 4 minutes"
    assert span_words(40 * minute, 100 * minute) == "last hour"
    assert span_words(96 * minute, 100 * minute) == "last 4 minutes"
    assert span_words(40 * minute, 100 * minute) == "last hour"


def test_sessions_end() -> None:
    ended: list[str] = []
    ids = iter("abcdef")
    sessions = Sessions(lambda: next(ids), ended.append, max_sessions=2, idle_s=10, limit_s=30)
    for held in ("one", "two", "three"):
        sessions.begin("u", held, 0)
    assert ended == ["one"] and sessions.find("a", 1) is None
    assert sessions.find("b", 9) is not None
    assert sessions.find("c", 11) is None and ended == ["one", "three"]
    for now in (18, 27):
        assert sessions.find("b", now) is not None
    assert sessions.find("b", 30) is None and len(sessions) == 0


def test_preview_of_a_reset() -> None:
    now = {QUEUES[0]: OffsetWrapper(20, 12, 12, 0), QUEUES[1]: OffsetWrapper(20, -1, -1, 0)}
    extents = {queue: TopicOffset(5, 20, 0) for queue in QUEUES}
    first, second = preview_rows(now, extents, {QUEUES[0]: 0, QUEUES[1]: 99})
    assert (first.committed, first.target, first.change) == (12, 5, -7)
    assert (second.committed, second.target, second.change) == (None, 20, 0)


def test_proof_of_a_login() -> None:
    assert is_proved("User:x has no permission to access Cluster:c from 1.2.3.4, no matched policies.")
    for remark in ("check signature failed.", "User:x is not found.", "User:x is disabled.", "", "something new"):
        assert not is_proved(remark)


def test_words() -> None:
    assert [duration(ms) for ms in (5, 1500, 61_000, 3_600_000, 90_061_000)] == [
        "5 ms",
        "1 s",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
    ]
    assert (size(10), size(2048), number(1234567)) == ("10 B", "2.0 KiB", "1\u202f234\u202f567")
    assert hex_lines(b"ab\x00") == "000000  61 62 00" + " " * 41 + "ab."
    part = slice_of(list(range(7)), 9, 3)
    assert (part.items, part.number, part.before, part.after) == ([6], 3, 2, None)


def received(topic: str, stored_ms: int, **properties: str) -> ReceivedMessage:
    """Return a message that was rejected three times."""
    return ReceivedMessage(
        topic="Orders", queue=MessageQueue(topic, "b", 0), queue_offset=0, physical_offset=0, body=b"x",
        raw_properties=encode(properties).encode(), flag=0, sys_flag=0, born_timestamp_ms=0, born_host=bytes(8),
        store_timestamp_ms=stored_ms, store_host=bytes(8), reconsume_times=3, size_bytes=100,
    )  # fmt: skip


def traced(kind: TraceKind, time_ms: int, group: str, **fields: Any) -> Found:
    return TraceRecord(kind=kind, message_id="id", time_ms=time_ms, group=group, **fields), "1.2.3.4"


TRACES = [
    traced(TraceKind.SUB_AFTER, 30, "g", is_success=False, context_code=2),
    traced(TraceKind.SUB_BEFORE, 30, "g"),
    traced(TraceKind.PUB, 12, "p"),
]


def test_a_timeline_has_causes_before_effects_whatever_clocks_say() -> None:
    steps = timeline(received("Orders", 10), TRACES, {})
    assert [(step.what, step.after) for step in steps] == [
        ("sent by the producer", "+0 ms"), ("stored by the broker", "-2 ms"), ("received by a consumer", "+18 ms"),
        ("rejected by the consumer", "+18 ms"),
    ]  # fmt: skip
    assert ("because of", "an exception") in steps[-1].details


def test_a_timeline_ends_with_the_dead_letter_and_its_reason() -> None:
    dead = received("%DLQ%g", 50, DEAD_LETTER_REASON="no such customer")
    of_message = timeline(received("Orders", 10), TRACES, {"g": dead})
    of_letter = timeline(dead, TRACES, {})
    for steps in (of_message, of_letter):
        assert steps[-1].what == "became a dead letter of g"
        assert ("reason", "no such customer") in steps[-1].details
    assert [step.what for step in of_letter].count("stored by the broker") == 0
    assert reason_of(received("%DLQ%g", 50)) == "rejected 3 times, without a reason"


def test_groups_say_how_they_finished_a_message() -> None:
    message = received("Orders", 10)
    passed = {message.queue: OffsetWrapper(9, 9, 9, 0)}
    progress: dict[str, dict[MessageQueue, OffsetWrapper] | AdminError] = dict.fromkeys(("g", "h", "i"), passed)
    found = [*TRACES, traced(TraceKind.SUB_AFTER, 40, "h")]
    page = message_page(message, found, progress, {"g": received("%DLQ%g", 50)})
    assert {one.group: one.state.partition(":")[0] for one in page.consumers} == {
        "g": "gave it up, it is a dead letter", "h": "has acknowledged it", "i": "has passed it",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "topic", "status", "advice"),
    [
        (TopicNotFound("Ordres", "n:1"), "Ordres", 404, "Check the name"),
        (AdminError("no route", 17), "Ordres", 404, "Check the name"),
        (AdminError("no route", 17), "", 502, "reason is above"),
        (AdminError("timeout"), "Orders", 502, "Check that the server runs"),
        (NameServerUnreachable("refused"), "", 502, "Check that the server runs"),
        (AdminError("disk full", 14), "Orders", 502, "reason is above"),
        (BadInput("to is missing"), "Orders", 400, "Correct it"),
    ],
)
def test_advice_fits_the_error(error: ClientError | BadInput, topic: str, status: int, advice: str) -> None:
    refusal = refusal_of(error, topic)
    assert refusal.status == status and advice in refusal.advice
    assert refusal.unknown_topic == (topic if status == 404 else "")


def test_nearest_names() -> None:
    names = ["Orders", "OrdersEU", "Invoices", "x" * 200]
    assert nearest("ordres", names) == ["Orders", "OrdersEU"]
    assert nearest("Shipments", names) == []


class Listed(list[QuotaUse]):
    """Uses that count how often they are looked through."""

    times = 0

    def __iter__(self) -> Iterator[QuotaUse]:
        self.times += 1
        return super().__iter__()


def test_uses_of_ten_thousand_quotas_are_looked_through_once() -> None:
    names = [f"topic:T{number:05}" for number in range(10_000)]
    uses = Listed(QuotaUse(name, name, "requests", 10, 1, number, 1, 1) for number, name in enumerate(names[:1000]))
    rows = quota_rows({"broker-a": {name: Quota(name, requests=10) for name in names}}, {"broker-a": uses})
    assert uses.times == 1 and len(rows) == 10_000
    assert [row.quota.name for row in rows[:2]] == ["topic:T00999", "topic:T00998"] and rows[0].exceeded == 1
