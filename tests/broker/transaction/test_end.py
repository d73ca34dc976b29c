"""END_TRANSACTION: what it writes, what it refuses, and that it takes effect once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import parse
from store.config.store_config import FlushDiskType
from tests.broker.transaction.rig import COMMIT, ROLLBACK, TOPIC, UNKNOWN, Rig
from tests.store.insides import group_commit_of

END_OF_OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def code(rig: Rig, *arguments: object, **changes: object) -> tuple[int, str | None]:
    response = rig.end(*arguments, **changes)  # type: ignore[arg-type]
    assert response is not None
    return response.code, response.remark


def test_commit_writes_the_real_message_and_an_op_message(rig: Rig) -> None:
    half = rig.prepare("K")
    assert rig.delivered() == []
    assert code(rig, half, COMMIT) == (ResponseCode.SUCCESS, None)
    (record,) = rig.records(TOPIC, 2)
    assert (record.sys_flag, record.flag, record.prepared_transaction_offset) == (COMMIT, 7, half[1])
    properties = parse(bytes(record.properties).decode())
    assert properties["__transactionId__"] == "K"
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["PGROUP"]) == (TOPIC, "2", "PG")
    entry = rig.store.entry(TOPIC, 2, 0)
    assert entry is not None
    assert entry[2] == java_hash_code("TagA")
    (op,) = rig.records(END_OF_OPS)
    assert bytes(op.body) == b"0,"
    assert bytes(op.properties).startswith(b"TAGS\x01d\x02WAIT\x01true\x02")


def test_rollback_writes_an_op_message_alone(rig: Rig) -> None:
    half = rig.prepare("K")
    assert code(rig, half, ROLLBACK) == (ResponseCode.SUCCESS, None)
    assert (rig.delivered(), rig.op_bodies(), rig.open_count()) == ([], [b"0,"], 0)


def test_unknown_is_not_answered_and_changes_nothing(rig: Rig) -> None:
    half = rig.prepare("K")
    assert rig.end(half, UNKNOWN) is None
    assert (rig.open_count(), rig.op_bodies()) == (1, [])


def test_one_read_is_one_append(rig: Rig) -> None:
    halves = [rig.prepare(f"K{number}") for number in range(5)]
    outcomes = [COMMIT, ROLLBACK, UNKNOWN, COMMIT, COMMIT]
    rig.processor.end([rig.request(half, outcome) for half, outcome in zip(halves, outcomes, strict=True)])
    assert rig.op_bodies() == [b"0,1,3,4,"]
    assert rig.delivered() == ["K0", "K3", "K4"]
    assert [answer.code for answer in rig.channel.answers] == [ResponseCode.SUCCESS] * 4


def test_op_messages_end_at_the_size_that_is_configured(tmp_path: Path) -> None:
    rig = Rig(tmp_path, transaction_op_msg_max_size=4)
    rig.processor.end([rig.request(rig.prepare(f"K{number}"), ROLLBACK) for number in range(5)])
    assert rig.op_bodies() == [b"0,1,", b"2,3,", b"4,"]
    rig.close()


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producer_group": "Other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 60}, "Find prepared transaction message failed"),
        ({"commit_or_rollback": 4}, "commitOrRollback field wrong"),
    ],
)
def test_what_does_not_fit_is_refused(rig: Rig, changes: dict[str, object], remark: str) -> None:
    half = rig.prepare("K")
    assert code(rig, half, COMMIT, **changes) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (rig.open_count(), rig.delivered()) == (1, [])


def test_a_message_that_is_no_half_message_cannot_be_committed(rig: Rig) -> None:
    half = rig.prepare("K")
    rig.end(half, COMMIT)
    (record,) = rig.records(TOPIC, 2)
    where = (record.queue_offset, record.physical_offset, 0)
    assert code(rig, where, COMMIT)[0] == ResponseCode.SYSTEM_ERROR
    assert rig.delivered() == ["K"]


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_an_end_that_comes_twice_takes_effect_once(rig: Rig, second: int) -> None:
    half = rig.prepare("K")
    rig.processor.end([rig.request(half, COMMIT), rig.request(half, second)])
    assert code(rig, half, second) == (ResponseCode.SYSTEM_ERROR, "The transaction has ended already")
    assert (rig.delivered(), rig.op_bodies()) == (["K"], [b"0,"])


def test_a_late_end_is_refused_where_the_producer_set_a_time(rig: Rig) -> None:
    half = rig.prepare("K", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    rig.clock.advance(20.001)
    assert code(rig, half, COMMIT)[0] == ResponseCode.ILLEGAL_OPERATION
    assert rig.delivered() == []
    assert code(rig, half, COMMIT, from_check=True)[0] == ResponseCode.SUCCESS


def test_the_set_time_is_never_shorter_than_the_timeout(rig: Rig) -> None:
    half = rig.prepare("K", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    rig.clock.advance(5.9)
    assert code(rig, half, COMMIT)[0] == ResponseCode.SUCCESS


def test_with_sync_flush_half_and_answer_wait_for_the_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    group_commit_of(rig.store).stop()  # the test flushes
    half = rig.prepare("K")
    assert code(rig, half, COMMIT)[1] == "Find prepared transaction message failed"
    rig.flush()
    assert rig.end(half, COMMIT) is None
    assert rig.delivered() == []
    rig.flush()
    assert [answer.code for answer in rig.channel.answers] == [ResponseCode.SUCCESS]
    assert rig.delivered() == ["K"]
    rig.close()


def test_a_message_over_a_limit_does_not_hold_up_the_others(rig: Rig) -> None:
    big = rig.prepare("big", b"x" * 5000)
    good = rig.prepare("good")
    rig.store._appender._max_body_bytes = 4000
    rig.store._appender._unchecked_bytes = 1000
    rig.processor.end([rig.request(big, COMMIT), rig.request(good, COMMIT)])
    assert [answer.code for answer in rig.channel.answers] == [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS]
    assert (rig.delivered(), rig.open_count()) == (["good"], 1)
