"""What a message becomes that was not acknowledged."""

import pytest

from broker.pop.records import PopCheckPoint
from broker.pop.revive.revived_message import is_given_up, revived, rewrite_count, rewritten, topic_of
from sprocket.remoting.message.properties import encode, parse
from store.record.record import Record, TagsCodes

NOW = 1_700_000_000_000
HOST = bytes(8)


def record(properties: dict[str, str], reconsume_times: int = 0) -> Record:
    encoded = memoryview(encode(properties).encode())
    body = memoryview(b"body")
    return Record(0, "T", 3, 9, 0, 8, 7, 123, HOST, 456, HOST, reconsume_times, 77, 0, body, encoded)


def checkpoint(**changes: object) -> PopCheckPoint:
    made = PopCheckPoint(so=5, pt=NOW, it=10_000, n=3, q=3, t="T", c="G", d=[0, 2, 4], bn="a", ro=8, bm=1)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("properties", "reconsume_times", "first_pop"),
    [
        ({}, 0, NOW),
        ({"TAGS": "A"}, 0, NOW),
        ({"TAGS": "A"}, 2, NOW),
        ({"1ST_POP_TIME": "5", "TAGS": "A"}, 2, 5),
        # Sent on with the properties of a message that was popped elsewhere.
        ({"1ST_POP_TIME": "5", "TAGS": "A"}, 0, NOW),
    ],
)
def test_first_pop_is_noted_once(properties: dict[str, str], reconsume_times: int, first_pop: int) -> None:
    message = revived(record(properties, reconsume_times), checkpoint(), "%RETRY%G_T", 0, HOST, TagsCodes(""))
    assert parse(message.properties.decode()) == properties | {"1ST_POP_TIME": str(first_pop)}
    assert message.reconsume_times == reconsume_times + 1
    assert (message.topic, message.queue_id, message.flag, message.sys_flag) == ("%RETRY%G_T", 0, 7, 8)
    assert (message.born_timestamp, message.prepared_transaction_offset) == (123, 0)


def test_a_suspended_message_keeps_its_count() -> None:
    suspended = checkpoint(sp=True)
    message = revived(record({}, 2), suspended, "R", 0, HOST, TagsCodes(""))
    assert message.reconsume_times == 2
    # Also if its checkpoint must be written again.
    assert rewritten(suspended, 5, NOW).sp and not rewritten(checkpoint(), 5, NOW).sp


def test_property_behind_one_that_is_not_ended() -> None:
    properties = memoryview(b"KEYS\x01k")
    unended = record({})
    unended.properties = properties
    message = revived(unended, checkpoint(), "R", 0, HOST, TagsCodes(""))
    assert parse(message.properties.decode()) == {"KEYS": "k", "1ST_POP_TIME": str(NOW)}


@pytest.mark.parametrize(
    ("topic", "v2", "expected"),
    [("T", False, "%RETRY%G_T"), ("T", True, "%RETRY%G+T"), ("%RETRY%G_T", True, "%RETRY%G_T")],
)
def test_retry_topic(topic: str, v2: bool, expected: str) -> None:
    assert topic_of(checkpoint(t=topic), v2) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [(None, 0), ("0", 0), ("16", 16), ("+3", 3), ("-2", -2), ("", 127), ("x", 127), ("1.5", 127), ("3000000000", 127)],
)
def test_count_of_rewrites(text: str | None, count: int) -> None:
    assert rewrite_count(checkpoint(rp=text)) == count


@pytest.mark.parametrize(
    ("rp", "later_s"), [(None, 10), ("1", 20), ("2", 30), ("16", 7200), ("17", 7200), ("x", 7200), ("-5", 10)]
)
def test_checkpoint_is_written_again_for_one_message_and_for_later(rp: str | None, later_s: int) -> None:
    again = rewritten(checkpoint(rp=rp), 7, NOW + 10_000)
    assert (again.so, again.n, again.d, again.bm, again.ro) == (7, 1, [0], 0, 0)
    assert (again.t, again.c, again.q, again.bn, again.pt) == ("T", "G", 3, "a", NOW)
    assert again.it == 10_000 + later_s * 1_000
    assert again.rp == str(rewrite_count(checkpoint(rp=rp)) + 1)


def test_checkpoint_whose_time_is_to_come_keeps_it() -> None:
    assert rewritten(checkpoint(), 7, NOW + 9_999).it == 10_000


def test_it_is_given_up_only_where_that_is_wanted() -> None:
    assert not is_given_up(checkpoint(rp="17"), skips=False)
    assert is_given_up(checkpoint(rp="17"), skips=True)
    assert not is_given_up(checkpoint(rp="16"), skips=True)
