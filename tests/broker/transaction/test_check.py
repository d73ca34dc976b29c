"""The check: which producer is asked when, how often, and what happens to unknown transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.transaction.check_rules import CheckRules, Verdict
from broker.transaction.half_message import HalfMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.message.topic_names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.record.record import Record, TagsCodes
from tests.broker.transaction.rig import COMMIT, ROLLBACK, TOPIC, UNKNOWN, FakeChannel, Rig
from tests.store.rig import HOST

RULES = CheckRules(timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
NOW = 10_000_000_000


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def half(age_ms: int, stored_ms: int | None = None, /, **properties: str) -> HalfMessage:
    encoded = memoryview(encode(properties).encode())
    born = NOW - age_ms
    stored = born if stored_ms is None else stored_ms
    return HalfMessage(
        Record(0, TRANS_HALF_TOPIC, 0, 5, 500, 0, 0, born, HOST, stored, HOST, 0, 0, 0, memoryview(b""), encoded)
    )


IMMUNE = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (half(5_999), Verdict.WAIT),
        (half(6_000), Verdict.CHECK),
        (half(60_000, NOW), Verdict.WAIT),  # written in this turn
        (half(60_000, TRANSACTION_CHECK_TIMES="14"), Verdict.CHECK),
        (half(60_000, TRANSACTION_CHECK_TIMES="15"), Verdict.GIVE_UP),
        (half(60_000, TRANSACTION_CHECK_TIMES="many"), Verdict.CHECK),
        (half(72 * 3_600_000 + 1), Verdict.GIVE_UP),
        (half(-1, NOW - 1), Verdict.CHECK),  # born in the future
        (half(6_000, **IMMUNE), Verdict.RENEW),
        (half(59_999, **IMMUNE), Verdict.RENEW),
        (half(60_000, **IMMUNE), Verdict.CHECK),
        (half(30_000, TRAN_PREPARED_QUEUE_OFFSET="-1", **IMMUNE), Verdict.CHECK),
        (half(5_000, CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), Verdict.RENEW),
        (half(6_000, CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), Verdict.CHECK),
        (half(2_000, CHECK_IMMUNITY_TIME_IN_SECONDS="1"), Verdict.CHECK),
    ],
)
def test_verdict(message: HalfMessage, verdict: Verdict) -> None:
    assert RULES.verdict(message, NOW, NOW) is verdict


def test_nobody_is_asked_before_the_timeout(rig: Rig) -> None:
    rig.prepare("K")
    assert rig.turn(5.999) == []
    assert rig.turn(0.001) == ["K"]


def test_question_is_answered_under_the_copy(rig: Rig) -> None:
    rig.prepare("K", b"body")
    rig.turn()
    (header, body) = rig.channel.asked[0]
    assert (header.topic, header.tran_state_table_offset, header.broker_name) == (TRANS_HALF_TOPIC, 1, "broker-a")
    copy = rig.halves()[1]
    assert (header.commit_log_offset, header.transaction_id) == (copy.physical_offset, "K")
    assert parse(bytes(copy.properties).decode())["TRANSACTION_CHECK_TIMES"] == "1"
    (message,) = decode_records(body, MessageQueue("", "broker-a", 0))
    assert (message.topic, message.body, message.tags, message.flag) == (TOPIC, b"body", "TagA", 7)
    assert header.offset_msg_id == message.offset_message_id
    rig.answer({"K": COMMIT})
    assert (rig.delivered(), rig.open_count()) == (["K"], 0)


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_an_end_under_the_first_message_ends_the_copy_too(rig: Rig, outcome: int) -> None:
    first = rig.prepare("K")
    rig.turn()
    rig.end(first, outcome)
    rig.answer({"K": outcome})
    assert rig.turn() == []
    assert rig.delivered() == (["K"] if outcome == COMMIT else [])
    assert rig.op_bodies() == [b"1,0,"]


def test_a_transaction_without_an_answer_is_checked_each_turn_and_given_up_at_last(tmp_path: Path) -> None:
    rig = Rig(tmp_path, transaction_check_max=3)
    first = rig.prepare("K")
    asked = [rig.turn() for _ in range(4)]
    assert asked == [["K"]] * 3 + [[]]
    assert (rig.given_up(), rig.open_count(), rig.delivered()) == (["K"], 0, [])
    assert rig.topics.get("TRANS_CHECK_MAX_TIME_TOPIC") is not None
    rig.end(first, COMMIT)
    assert rig.delivered() == []
    rig.close()


def test_a_turn_writes_one_line_of_each_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, transaction_check_max=1)
    for number in range(12):
        rig.prepare(f"K{number}")
    rig.turn()  # all are asked about
    list(rig.producers.channel_closed(rig.channel))  # type: ignore[arg-type]
    for number in range(12, 20):
        rig.prepare(f"K{number}")
    caplog.clear()
    rig.turn()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("broker.transaction.check")]
    keys = [f"K{number}" for number in range(5)]
    assert lines == [
        "event=no_producer_to_ask transactions=8 groups=1 most={'PG': 8}",
        f"event=transaction_given_up transactions=12 topics={{'{TOPIC}': 12}} unique_keys={keys} "
        "moved_to=TRANS_CHECK_MAX_TIME_TOPIC",
    ]
    assert len(rig.given_up()) == 12
    rig.turn()
    assert len(rig.given_up()) == 20
    caplog.clear()
    rig.turn()
    assert not [record for record in caplog.records if record.name.startswith("broker.transaction.check")]
    rig.close()


def test_without_a_producer_it_waits_and_counts(rig: Rig) -> None:
    list(rig.producers.channel_closed(rig.channel))  # type: ignore[arg-type]
    rig.prepare("K")
    assert rig.turn() == []
    rig.join(rig.channel)
    assert rig.turn() == ["K"]
    assert parse(bytes(rig.halves()[-1].properties).decode())["TRANSACTION_CHECK_TIMES"] == "2"


def test_producers_of_a_group_take_turns_and_the_dead_are_left_out(rig: Rig) -> None:
    second, dead = FakeChannel(id=2), FakeChannel(id=3, is_closed=True)
    rig.join(second)
    rig.join(dead)
    for number in range(4):
        rig.prepare(f"K{number}")
    rig.turn()
    assert (len(rig.channel.asked), len(second.asked), dead.asked) == (2, 2, [])


def test_an_immune_message_is_written_again_and_nobody_is_asked(rig: Rig) -> None:
    first = rig.prepare("K", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    assert [rig.turn() for _ in range(3)] == [[], [], []]
    copies = [parse(bytes(record.properties).decode()) for record in rig.halves()[1:]]
    assert [copy["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies] == ["0"] * 3
    assert not any("TRANSACTION_CHECK_TIMES" in copy for copy in copies)
    rig.end(first, COMMIT)
    assert rig.delivered() == ["K"]
    assert rig.turn() == []


def test_a_young_one_does_not_hide_an_old_one_behind_it(rig: Rig) -> None:
    rig.prepare("young", CHECK_IMMUNITY_TIME_IN_SECONDS="9999")
    rig.prepare("old")
    assert rig.turn() == ["old"]


def test_a_step_of_the_clock_loses_nothing(rig: Rig) -> None:
    rig.prepare("K")
    rig.clock.step_wall(-3_600_000)
    rig.turn(1.0)
    rig.clock.step_wall(7_200_000)
    assert rig.turn() == ["K"]
    rig.answer({"K": COMMIT})
    assert rig.delivered() == ["K"]


def test_offsets_are_committed_when_the_disk_has_what_they_say(rig: Rig) -> None:
    rig.stores.notified.clear()
    halves = [rig.prepare(f"K{number}") for number in range(3)]
    rig.end(halves[0], COMMIT)
    rig.end(halves[2], COMMIT)
    rig.flush()
    rig.transactions.commit_offsets()
    assert rig.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) == 1
    assert rig.offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0) == 1
    rig.end(halves[1], ROLLBACK)
    rig.flush()
    rig.transactions.commit_offsets()
    assert rig.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) == 3
    assert rig.offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0) == 3


def test_many_take_several_steps(rig: Rig) -> None:
    messages = 600
    for number in range(messages):
        rig.prepare(f"K{number}")
    rig.clock.advance(30)
    rig.check.begin()
    steps = 1
    while not rig.check.step():
        steps += 1
    assert steps == 3
    assert len(rig.channel.asked) == messages
    rig.answer({f"K{number}": (COMMIT, ROLLBACK, UNKNOWN)[number % 3] for number in range(messages)})
    assert (len(rig.delivered()), rig.open_count()) == (200, 200)


def test_copies_keep_properties_that_are_not_utf8() -> None:
    record = half(6_000).record
    sent = b"name\x01\xc4\xe3\x02\xff\x01v\x02"
    record.properties = memoryview(sent)
    message = HalfMessage(record)
    assert message.encoded() == sent
    codes = TagsCodes("1s")
    assert bytes(message.checked_copy(codes).properties) == sent + b"TRANSACTION_CHECK_TIMES\x011\x02"
    assert bytes(message.real("T", 0, codes).properties) == sent
