"""Both ends of a connection: start offset, acknowledgements, end."""

import random

import pytest

from ha.protocol import report, transfer_head
from ha.slave_link import SlaveLink, SlaveRules
from sprocket.common.errors import ProtocolError
from tests.ha.links import SEGMENT, MemoryLog, exchange, master_of, slave_of
from tests.tiers import seeds

CONTENT = bytes(number % 251 for number in range(2500))


def whole(data: bytes) -> list[bytes]:
    return [data]


def test_nothing_is_sent_before_the_slave_has_said_where_it_is() -> None:
    master = master_of(MemoryLog(CONTENT))
    assert master.next_piece(100.0) == []
    assert master.acked_offset == -1


@pytest.mark.parametrize("seed", seeds(20))
def test_a_slave_catches_up_from_wherever_it_is(seed: int) -> None:
    choose = random.Random(seed)
    log, replica = MemoryLog(CONTENT), MemoryLog(CONTENT[: choose.randrange(1, 2500)])
    master, slave = master_of(log, batch_bytes=choose.randrange(1, 300)), slave_of(replica)

    def split(data: bytes) -> list[bytes]:
        at = choose.randrange(len(data) + 1)
        return [data[:at], data[at:]]

    exchange(master, slave, 0.0, split)
    assert replica.content == CONTENT
    assert master.acked_offset == 2500
    assert master.lag_bytes() == 0
    log.content += b"more"
    assert master.lag_bytes() == 4
    exchange(master, slave, 1.0, split)
    assert replica.content == CONTENT + b"more"


def test_an_empty_slave_begins_with_the_last_segment_as_rocketmqs() -> None:
    replica = MemoryLog()
    master = master_of(MemoryLog(CONTENT))
    exchange(master, slave_of(replica), 0.0, whole)
    assert (replica.start, bytes(replica.content)) == (2 * SEGMENT, CONTENT[2000:])
    assert master.acked_offset == 2500


def test_an_empty_slave_may_begin_with_the_first_segment() -> None:
    replica = MemoryLog()
    log = MemoryLog(CONTENT[:1500], start=SEGMENT)
    exchange(master_of(log, from_last_segment=False), slave_of(replica), 0.0, whole)
    assert (replica.start, bytes(replica.content)) == (SEGMENT, CONTENT[:1500])


def test_an_empty_slave_begins_with_a_segment_that_holds_something() -> None:
    replica = MemoryLog()
    master = master_of(MemoryLog(CONTENT[:2000]))
    exchange(master, slave_of(replica), 0.0, whole)
    assert (replica.start, bytes(replica.content)) == (SEGMENT, CONTENT[1000:2000])
    assert master.acked_offset == 2000


@pytest.mark.parametrize("differs_at", [1, 700, 1499])
def test_a_slave_whose_end_is_another_one_does_not_follow(differs_at: int) -> None:
    old = bytearray(CONTENT[:1500])
    old[differs_at] ^= 1
    replica, master = MemoryLog(bytes(old)), master_of(MemoryLog(CONTENT), batch_bytes=300)
    with pytest.raises(ProtocolError, match="ends at 1500"):
        exchange(master, slave_of(replica), 0.0, whole)
    assert replica.content == old
    assert master.acked_offset <= differs_at


def test_a_slave_acknowledges_what_it_has_compared() -> None:
    replica = MemoryLog(CONTENT[:1500])
    slave = SlaveLink(SlaveRules(segment_bytes=SEGMENT), replica, 0.0)
    assert slave.begin(0.0) == report(1000)
    assert slave.received(transfer_head(1000, 200) + CONTENT[1000:1200], 0.0) == report(1200)
    # The master has no more than the slave, so nothing beyond is acknowledged.
    assert slave.due(5.0) == report(1200)
    assert slave.received(transfer_head(1200, 400) + CONTENT[1200:1600], 6.0) == report(1600)
    assert replica.content == CONTENT[:1600]


def test_no_piece_crosses_a_segment_or_the_batch_size() -> None:
    master = master_of(MemoryLog(CONTENT), batch_bytes=300)
    master.received(report(850), 0.0)
    sizes = []
    while piece := master.next_piece(0.0):
        sizes.append(len(piece[1]))
    assert sizes == [150, 300, 300, 300, 100, 300, 200]


@pytest.mark.parametrize("offset", [2501, 1 << 62, -1])
def test_a_slave_that_is_further_than_its_master_is_sent_away(offset: int) -> None:
    with pytest.raises(ProtocolError):
        master_of(MemoryLog(CONTENT)).received(report(offset), 0.0)


def test_a_slave_whose_place_retention_has_removed_is_told_what_to_do() -> None:
    with pytest.raises(ProtocolError, match="move the slave's store aside"):
        master_of(MemoryLog(CONTENT, start=1000)).received(report(500), 0.0)


def test_only_what_was_sent_can_be_acknowledged() -> None:
    master = master_of(MemoryLog(CONTENT), batch_bytes=100)
    master.received(report(1000), 0.0)
    master.next_piece(0.0)
    assert not master.received(report(1000), 0.0)
    assert master.received(report(1100), 0.0)
    with pytest.raises(ProtocolError, match="1101"):
        master.received(report(1101), 0.0)
    assert master.acked_offset == 1100


def test_random_bytes_acknowledge_nothing() -> None:
    choose = random.Random(1)
    for _ in range(200):
        master = master_of(MemoryLog(CONTENT))
        data = choose.randbytes(64)
        try:
            master.received(data, 0.0)
        except ProtocolError:
            assert master.acked_offset <= 2500
        else:
            raise AssertionError("eight random numbers cannot all be offsets that were sent")


def test_an_acknowledgement_does_not_go_back() -> None:
    master = master_of(MemoryLog(CONTENT))
    master.received(report(2500), 0.0)
    assert not master.received(report(10), 0.0)
    assert master.acked_offset == 2500


def test_heartbeats_go_both_ways_and_silence_ends_the_connection() -> None:
    replica = MemoryLog(CONTENT)
    master, slave = master_of(MemoryLog(CONTENT)), slave_of(replica)
    exchange(master, slave, 0.0, whole)
    assert master.next_piece(4.9) == []
    assert master.wait_s(4.9) == pytest.approx(0.1)
    assert master.next_piece(5.0) == [transfer_head(2500, 0)]
    assert slave.due(4.9) == b""
    assert slave.due(5.0) == report(2500)
    slave.received(transfer_head(2500, 0), 6.0)
    assert not slave.is_expired(26.0)
    assert slave.is_expired(26.1)
    assert not master.is_expired(20.0)
    assert master.is_expired(20.1)


def test_a_piece_that_does_not_follow_is_not_taken() -> None:
    replica = MemoryLog(CONTENT[:100])
    slave = slave_of(replica)
    for offset in (99, 101, 0):
        with pytest.raises(ProtocolError, match="ends at 100"):
            slave.received(transfer_head(offset, 4) + b"oops", 0.0)
    with pytest.raises(ProtocolError):
        slave.received(transfer_head(100, 4) + b"good" + transfer_head(100, 4) + b"oops", 0.0)
    assert replica.content == CONTENT[:100] + b"good"


def test_one_report_answers_all_that_a_read_brought() -> None:
    slave = slave_of(MemoryLog())
    data = b"".join(transfer_head(1000 + 2 * number, 2) + b"xy" for number in range(10))
    assert slave.received(data, 0.0) == report(1020)
    assert slave.received(transfer_head(1020, 0), 0.0) == b""
    assert slave.master_offset == 1020


def test_a_limit_of_bytes_a_second_is_kept() -> None:
    master = master_of(MemoryLog(CONTENT), batch_bytes=300, bytes_per_s=500)
    master.received(report(1000), 0.0)
    sizes = []
    while piece := master.next_piece(0.5):
        sizes.append(len(piece[1]))
    assert sum(sizes) == 500
    assert master.wait_s(0.5) == pytest.approx(0.5)
    assert master.next_piece(1.0) != []


def test_tables_may_be_asked_for_once_the_logs_were_compared_and_not_before() -> None:
    log = MemoryLog(b"x" * 6000)
    link = SlaveLink(SlaveRules(), log, 0.0)
    assert not link.admits_polling
    link.begin(0.0)
    assert not link.admits_polling
    # An empty RocketMQ master sends an empty transfer from the offset that the slave asked for.
    link.received(transfer_head(6000 - 4096, 0), 0.0)
    assert not link.admits_polling
    link.received(transfer_head(6000 - 4096, 4096) + b"x" * 4096, 0.0)
    assert link.admits_polling


def test_a_slave_with_nothing_takes_the_tables_of_any_master() -> None:
    link = SlaveLink(SlaveRules(), MemoryLog(b""), 0.0)
    link.begin(0.0)
    assert link.admits_polling
