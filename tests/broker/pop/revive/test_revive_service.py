"""Redelivery of popped messages that were not acknowledged, on a manual clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.pop.records import PopCheckPoint
from sprocket.common.errors import RequestError
from sprocket.common.figures import values
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.message.properties import parse
from store.message_store import PendingMessage
from tests.broker.pop.revive_rig import RETRY, ReviveRig
from tests.broker.rig import GROUP, TOPIC


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ReviveRig]:
    rig = ReviveRig(tmp_path)
    yield rig
    rig.close()


def test_what_is_not_acknowledged_is_redelivered_once(rig: ReviveRig) -> None:
    rig.send(3)
    rig.pop(0, 1, 2)
    rig.elapse(9.9)
    assert rig.revived() == []
    rig.elapse(5)
    assert rig.offsets_again() == [0, 1, 2]
    rig.elapse(60)
    assert len(rig.revived()) == 3


def test_what_is_acknowledged_is_not_redelivered(rig: ReviveRig) -> None:
    rig.send(4)
    checkpoint = rig.pop(0, 1, 3)
    rig.elapse(1)
    rig.ack(checkpoint, 1)
    rig.elapse(60)
    assert rig.offsets_again() == [0, 3]


def test_several_are_acknowledged_at_once(rig: ReviveRig) -> None:
    rig.send(5)
    checkpoint = rig.pop(0, 2, 3, 4)
    rig.ack(checkpoint, 2, 4)
    rig.elapse(60)
    assert rig.offsets_again() == [0, 3]


def test_acknowledged_in_the_last_moment_is_acknowledged(rig: ReviveRig) -> None:
    rig.send()
    checkpoint = rig.pop(0)
    rig.elapse(9.9)
    rig.ack(checkpoint, 0)
    rig.elapse(60)
    assert rig.revived() == []


def test_acknowledged_too_late_changes_nothing(rig: ReviveRig) -> None:
    rig.send()
    checkpoint = rig.pop(0)
    rig.elapse(15)
    rig.ack(checkpoint, 0)
    rig.elapse(60)
    assert rig.offsets_again() == [0]
    assert rig.service.queues[0].behind_messages == 0, "nothing waits for its checkpoint"


def test_revived_message_is_what_was_sent(rig: ReviveRig) -> None:
    rig.send(KEYS="order-1")
    checkpoint = rig.pop(0)
    rig.elapse(15)
    record = rig.record(RETRY, 0, 0)
    assert bytes(record.body) == b"Orders 0 0"
    assert (record.flag, record.born_timestamp, record.reconsume_times) == (7, 123, 1)
    assert record.born_host == rig.core.store.store_host
    properties = parse(bytes(record.properties).decode())
    del properties["__CRC32#"]  # The store's seal.
    assert properties == {
        "TAGS": "TagA",
        "UNIQ_KEY": "id",
        "KEYS": "order-1",
        "1ST_POP_TIME": str(checkpoint.pt),
    }
    entry, sent = rig.core.store.entry(RETRY, 0, 0), rig.core.store.entry(TOPIC, 0, 0)
    assert entry is not None
    assert sent is not None
    assert entry[2] == sent[2], "found by the same tag"


def test_message_of_the_retry_topic_goes_back_to_it_and_is_counted(rig: ReviveRig) -> None:
    rig.send()
    first = rig.pop(0)
    rig.elapse(15)
    rig.pop(0, topic=RETRY)
    rig.elapse(15)
    record = rig.record(RETRY, 0, 1)
    assert record.reconsume_times == 2
    assert parse(bytes(record.properties).decode())["1ST_POP_TIME"] == str(first.pt)


def test_retry_topic_is_made_with_one_queue_and_read_from_its_begin(rig: ReviveRig) -> None:
    rig.send()
    rig.pop(0)
    assert RETRY not in rig.core.topics
    rig.elapse(15)
    config = rig.core.topics.get(RETRY)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert rig.core.offsets.query(GROUP, RETRY, 0) == 0


def test_retry_topic_of_the_second_kind(tmp_path: Path) -> None:
    rig = ReviveRig(tmp_path, enable_retry_topic_v2=True)
    rig.send()
    rig.pop(0)
    rig.elapse(15)
    assert rig.offsets_again(f"%RETRY%{GROUP}+{TOPIC}") == [0]
    rig.close()


def test_group_that_reads_its_retry_topic_already_is_left_where_it_is(rig: ReviveRig) -> None:
    rig.core.offsets.commit(GROUP, RETRY, 0, 5)
    rig.send()
    rig.pop(0)
    rig.elapse(15)
    assert rig.core.offsets.query(GROUP, RETRY, 0) == 5


@pytest.mark.parametrize("gone", ["topic", "group"])
def test_what_is_gone_is_not_redelivered(tmp_path: Path, gone: str) -> None:
    rig = ReviveRig(tmp_path, auto_create_subscription_group=False)
    rig.send()
    rig.pop(0)
    rig.core.topics.delete(TOPIC) if gone == "topic" else rig.core.groups.delete(GROUP)
    rig.elapse(15)
    assert rig.revived() == []
    rig.flush()
    rig.elapse(2)
    assert rig.committed == 0
    rig.close()


def test_message_that_has_expired_is_passed_over(rig: ReviveRig) -> None:
    rig.send()
    rig.pop(0, 7)
    rig.elapse(15)
    assert rig.offsets_again() == [0]


def test_listeners_get_each_redelivery(rig: ReviveRig) -> None:
    heard: list[tuple[str, str, int, int]] = []
    rig.service.on_revived.append(lambda ck, count: heard.append((ck.t, ck.c, ck.q, count)))
    rig.send(2)
    checkpoint = rig.pop(0, 1)
    rig.ack(checkpoint, 1)
    rig.elapse(15)
    assert heard == [(TOPIC, GROUP, 0, 1)]


# Records in any state


def test_records_that_lie_in_the_topic_without_a_wheel(rig: ReviveRig) -> None:
    rig.send(2)
    now = rig.clock.wall_ms()
    late = PopCheckPoint(so=0, pt=now, it=60_000, n=1, t=TOPIC, c=GROUP)
    soon = PopCheckPoint(so=1, pt=now, it=5_000, n=1, t=TOPIC, c=GROUP)
    rig.put(dumps(late), "ck")
    rig.put(dumps(soon), "ck")
    rig.elapse(4.9)
    assert rig.revived() == []
    rig.elapse(5)
    assert rig.offsets_again() == [1], "one that is not due does not hold up others"
    rig.flush()
    rig.elapse(1)
    assert rig.committed == -1, "but the offset"
    rig.elapse(60)
    assert rig.offsets_again() == [1, 0]


@pytest.mark.parametrize(
    ("body", "tag"),
    [
        (b"{", "ck"),
        (b"[]", "ack"),
        (b'{"aol":7}', "bAck"),
        (b"\xff\xfe", "ck"),
        (b'{"t":"\xff","c":"CG"}', "ck"),
        (b'{"x":' + b"[" * 20_000, "ack"),
        (b'{"t":"Orders","c":"CG","n":1,"so":99999999999999999999}', "ck"),
        (b'{"t":"Orders","c":"CG","n":1,"q":4294967296}', "ck"),
        (b"{}", "ck"),
        (b'{"t":"Orders","c":"CG","n":128}', "ck"),
        (b'{"t":"Orders","c":"CG","n":2,"d":[0]}', "ck"),
        (b'{"t":"Orders","c":"CG","n":-1}', "ck"),
        (b"anything", "other"),
    ],
)
def test_record_that_makes_no_sense_is_passed_over(rig: ReviveRig, body: bytes, tag: str) -> None:
    rig.put(body, tag)
    rig.send()
    rig.pop(0)
    rig.elapse(15)
    assert rig.offsets_again() == [0]
    rig.flush()
    rig.elapse(1)
    assert rig.committed == 1


def test_checkpoint_that_says_what_is_acknowledged(rig: ReviveRig) -> None:
    rig.send(3)
    rig.pop(0, 1, 2, bm=0b101)
    rig.elapse(15)
    assert rig.offsets_again() == [1]


def test_checkpoint_of_an_old_version_has_no_distances(rig: ReviveRig) -> None:
    rig.send(3)
    checkpoint = rig.pop(0, 1, 2, d=None)
    rig.ack(checkpoint, 1)
    rig.elapse(15)
    assert rig.offsets_again() == [0, 2]


def test_full_checkpoint_of_a_java_int(rig: ReviveRig) -> None:
    offsets = rig.send(32)
    rig.pop(*offsets, bm=-1)
    rig.elapse(15)
    assert rig.revived() == []


def test_checkpoint_that_the_timer_delivers_twice_is_one(rig: ReviveRig) -> None:
    rig.send(2)
    checkpoint = rig.pop(0, 1)
    rig.ack(checkpoint, 0)
    rig.pop(0, 1)
    rig.elapse(15)
    assert rig.offsets_again() == [1]


def test_acknowledgement_that_comes_before_its_checkpoint_counts(rig: ReviveRig) -> None:
    rig.send(2)
    checkpoint = PopCheckPoint(so=0, pt=rig.clock.wall_ms() - 10_000, it=10_000, n=2, t=TOPIC, c=GROUP, bn="broker-a")
    rig.ack(checkpoint, 0)
    rig.elapse(1)
    rig.put(dumps(checkpoint), "ck")
    rig.elapse(15)
    assert rig.offsets_again() == [1]


# The timer is late, the clock steps


class Timer:
    """Timer progress that the test sets."""

    def __init__(self, behind_ms: int = 0) -> None:
        self.dequeue_behind_ms = behind_ms
        self.enqueue_behind = 0
        self.queue_offset = 0


def test_timer_is_behind_when_a_message_waits_for_the_wheel_for_a_second(rig: ReviveRig) -> None:
    rig.service.timer = timer = Timer()
    rig.send()
    rig.pop(0)
    assert not rig.service.is_timer_behind()
    timer.enqueue_behind = 1
    rig.clock.advance(0.9)
    assert not rig.service.is_timer_behind(), "it may have come just now"
    rig.clock.advance(0.1)
    assert rig.service.is_timer_behind()


def test_while_the_timer_is_behind_nothing_is_taken_for_unacknowledged(rig: ReviveRig) -> None:
    rig.send()
    checkpoint = rig.pop(0)
    rig.ack(checkpoint, 0)
    rig.service.timer = timer = Timer(behind_ms=2_000)
    rig.elapse(9.5)
    rig.is_wheel_stopped = True
    rig.elapse(20)
    assert rig.revived() == []
    rig.is_wheel_stopped = False
    rig.elapse(1)
    timer.dequeue_behind_ms = 1_999
    rig.elapse(20)
    assert rig.revived() == []


def test_records_that_are_due_later_vouch_for_a_timer_that_is_behind(rig: ReviveRig) -> None:
    rig.service.timer = Timer(behind_ms=60_000)
    rig.send(2)
    rig.pop(0)
    rig.elapse(20)
    assert rig.revived() == []
    rig.pop(1)
    rig.elapse(20)
    assert rig.offsets_again() == [0]


def test_clock_that_steps_back_holds_nothing_for_longer_than_its_time(rig: ReviveRig) -> None:
    rig.send()
    now = rig.clock.wall_ms()
    rig.put(dumps(PopCheckPoint(so=0, pt=now, it=10_000, n=1, t=TOPIC, c=GROUP)), "ck")
    rig.elapse(1.5)
    rig.clock.step_wall(-3_600_000)
    rig.put(dumps(PopCheckPoint(so=0, pt=now, it=10_000, n=1, t=TOPIC, c="Other")), "ck")
    rig.elapse(12)
    assert rig.offsets_again() == [0]
    rig.elapse(5)
    assert rig.offsets_again(f"%RETRY%Other_{TOPIC}") == [0]


# Checkpoints that are written again


def test_checkpoint_of_another_broker_is_written_again(rig: ReviveRig) -> None:
    rig.send(2)
    checkpoint = rig.pop(0, 1, bn="broker-b")
    rig.ack(checkpoint, 1)
    rig.elapse(14)
    assert rig.revived() == []
    figures = rig.service.queues[0].figures
    assert figures.rewritten == 2, "an acknowledgement names its broker, and this is not the one"
    rig.elapse(11)
    assert figures.rewritten == 4


def test_message_that_the_store_takes_no_more_is_tried_again_later(rig: ReviveRig) -> None:
    rig.send(2)
    rig.pop(0, 1)
    real, refused = rig.core.store.append, True

    def append(messages: list[PendingMessage]) -> object:
        if refused and any(message.body == b"Orders 0 0" for message in messages):
            raise RequestError(13, "too large")
        return real(messages)

    rig.core.store.append = append  # type: ignore[method-assign, assignment] # stands in for a limit
    rig.elapse(14)
    assert rig.offsets_again() == [1], "the others do not wait for it"
    refused = False
    rig.elapse(12)
    assert rig.offsets_again() == [1, 0]
    assert parse(bytes(rig.record(RETRY, 0, 1).properties).decode())["1ST_POP_TIME"]


def test_checkpoint_is_given_up_after_its_last_time_if_that_is_wanted(tmp_path: Path) -> None:
    rig = ReviveRig(tmp_path, skip_when_ck_re_put_reach_max_times=True)
    rig.send()
    rig.pop(0, bn="broker-b", rp="16")
    rig.elapse(14)
    assert rig.service.queues[0].figures.rewritten == 1
    rig.elapse(7_200)
    assert rig.service.queues[0].figures.rewritten == 1
    rig.close()


# Offsets


def test_offset_is_committed_once_the_redelivered_messages_are_on_the_disk(rig: ReviveRig) -> None:
    rig.send()
    rig.pop(0)
    rig.elapse(20)
    assert rig.offsets_again() == [0]
    assert rig.committed == -1
    rig.flush()
    rig.elapse(1)
    assert rig.committed == 0


def test_crash_before_the_commit_gives_it_again_and_loses_nothing(rig: ReviveRig) -> None:
    rig.send(2)
    rig.pop(0)
    rig.pop(1)
    rig.elapse(20)
    again = rig.crash()
    again.elapse(20)
    assert sorted(again.offsets_again()) == [0, 0, 1, 1]
    again.flush()
    again.elapse(1)
    third = again.restart()
    third.elapse(20)
    assert len(third.revived()) == 4
    third.close()


def test_crash_within_the_window_forgets_no_acknowledgement(rig: ReviveRig) -> None:
    rig.send(2)
    checkpoint = rig.pop(0, 1)
    rig.ack(checkpoint, 1)
    rig.elapse(11)
    rig.flush()
    again = rig.restart()
    again.elapse(20)
    assert again.offsets_again() == [0]
    again.close()


def test_offset_beyond_the_queue_is_corrected(rig: ReviveRig) -> None:
    rig.core.offsets.commit("CID_RMQ_SYS_REVIVE_GROUP", rig.log.topic, 0, 40)
    again = rig.restart()
    again.send()
    again.pop(0)
    again.elapse(15)
    assert again.offsets_again() == [0]
    again.close()


def test_expired_records_are_passed_over(tmp_path: Path) -> None:
    rig = ReviveRig(tmp_path)
    rig.core.offsets.commit("CID_RMQ_SYS_REVIVE_GROUP", rig.log.topic, 0, -7)
    again = rig.restart()
    again.send()
    again.pop(0)
    again.elapse(15)
    assert again.offsets_again() == [0]
    again.close()


def test_a_replica_that_does_not_serve_the_group_revives_nothing(rig: ReviveRig) -> None:
    rig.service.deactivate()
    rig.send()
    rig.pop(0)
    rig.elapse(60)
    assert rig.revived() == []
    rig.service.activate()
    rig.elapse(60)
    assert rig.revived() != []


# How much at a time


def test_many_are_revived_in_bounded_turns(rig: ReviveRig) -> None:
    offsets = rig.send(1_000)
    for at in range(0, 1_000, 10):
        rig.pop(*offsets[at : at + 10])
    sizes: list[int] = []
    real = rig.core.store.append

    def append(messages: list[PendingMessage]) -> object:
        sizes.append(len(messages))
        return real(messages)

    rig.core.store.append = append  # type: ignore[method-assign, assignment] # counts
    rig.elapse(15)
    assert rig.offsets_again() == offsets
    assert 200 < max(sizes) < 300


def test_idle_revive_has_no_timer(rig: ReviveRig) -> None:
    rig.elapse(5)
    assert rig.timers.pending == []
    rig.send()
    rig.pop(0)
    rig.elapse(20)
    rig.flush()
    rig.elapse(2)
    assert rig.timers.pending == []


def test_figures(rig: ReviveRig) -> None:
    assert values(rig.service.figures()) == {}
    rig.send(2)
    rig.pop(0)
    rig.elapse(11)
    assert values(rig.service.figures()) == {"popReviveLag_0": "1", "popReviveLatency_0": "1000"}
    rig.elapse(10)
    assert values(rig.service.figures()) == {"popReviveLag_0": "0", "popReviveLatency_0": "0"}
    figures = rig.service.queues[0].figures
    assert (figures.checkpoints, figures.acks, figures.retried) == (1, 0, 1)


def test_checkpoint_that_is_written_again_for_a_time_that_is_past_is_read_at_once(rig: ReviveRig) -> None:
    hour_ago = rig.clock.wall_ms() - 3_600_000
    rig.send()
    rig.put(dumps(PopCheckPoint(pt=hour_ago, it=1_000, n=1, t=TOPIC, c=GROUP, bn="broker-b")), "ck")
    rig.elapse(20)
    # 10 + 20 + 30 + 60 + 120 + ... s after its time; the 14th time is to come.
    assert rig.service.queues[0].figures.rewritten == 14


def test_a_suspended_message_comes_again_uncounted(rig: ReviveRig) -> None:
    rig.send(2)
    rig.pop(0, sp=True)
    rig.pop(1)
    rig.elapse(20)
    assert [rig.record(RETRY, 0, offset).reconsume_times for offset in (0, 1)] == [0, 1]


def test_retries_keep_their_queues_if_that_is_asked_for(tmp_path: Path) -> None:
    rig = ReviveRig(tmp_path, use_separate_retry_queue=True)
    topics = rig.core.topics
    rig.send(queue_id=0)
    rig.send(queue_id=3)
    rig.pop(0, q=0)
    rig.pop(0, q=3)
    rig.elapse(20)
    assert (topics.by_name[RETRY].write_queue_nums, topics.by_name[RETRY].read_queue_nums) == (4, 4)
    assert [rig.core.store.max_offset(RETRY, queue_id) for queue_id in range(4)] == [1, 0, 0, 1]
    assert [rig.core.offsets.query(GROUP, RETRY, queue_id) for queue_id in range(4)] == [0, 0, 0, 0]
    # The retry topic grows with its topic.
    topics.update([TopicConfig(TOPIC, 6, 6)])
    rig.send(queue_id=5)
    rig.pop(0, q=5)
    # A message of the retry topic stays in its queue.
    rig.pop(0, q=3, topic=RETRY)
    rig.elapse(20)
    assert [rig.core.store.max_offset(RETRY, queue_id) for queue_id in range(6)] == [1, 0, 0, 2, 0, 1]
    # It never shrinks: what is left in its queues is still read.
    topics.update([TopicConfig(TOPIC, 2, 2)])
    rig.pop(0, q=5, topic=RETRY)
    rig.elapse(20)
    assert topics.by_name[RETRY].read_queue_nums == 6
    assert rig.core.store.max_offset(RETRY, 0) == 2
    rig.close()
