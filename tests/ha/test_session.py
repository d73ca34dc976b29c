"""Sessions of two Sprocket brokers: frames, start offset, acknowledgements, tables, lost tail."""

import random
from collections.abc import Callable

import pytest

from ha.master_session import checksum
from ha.session import HEAD, MAX_BODY_BYTES, PIECE, REPORT, FrameReader, FrameType, frame, frame_head
from ha.slave_tables import TableAssembly
from ha.table_queue import TableContent, TableUpdate
from ha.tail_recovery import TailRecovery
from sprocket.common.errors import ProtocolError
from tests.ha.sessions import EPOCH, Ends, SessionMemoryLog, credentials, refusal
from tests.tiers import seeds

CONTENT = random.Random(5).randbytes(2500)
OTHER = random.Random(6).randbytes(4000)


def splitter(seed: int) -> Callable[[bytes], list[bytes]]:
    choose = random.Random(seed)

    def split(data: bytes) -> list[bytes]:
        places = sorted(choose.randrange(len(data) + 1) for _ in range(choose.randrange(6)))
        return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]

    return split


@pytest.mark.parametrize("seed", seeds(20))
def test_a_slave_catches_up_from_wherever_it_is_however_bytes_are_split(seed: int) -> None:
    at = random.Random(seed).randrange(0, 251) * 10
    log, replica = SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT[:at])
    ends = Ends(log, replica, batch_bytes=random.Random(seed).randrange(1, 300))
    ends.talk(splitter(seed))
    assert replica.content == CONTENT
    assert (ends.master.acked_offset, ends.master.requested_offset) == (2500, at)
    log.content += b"0123456789"
    ends.talk(splitter(seed + 100))
    assert replica.content == CONTENT + b"0123456789"
    assert ends.master.acked_offset == 2510


def test_what_is_flushed_is_reported_beside_what_is_received() -> None:
    replica = SessionMemoryLog(CONTENT[:500])
    ends = Ends(SessionMemoryLog(CONTENT), replica)
    ends.talk()
    assert (ends.master.acked_offset, ends.master.flushed_offset) == (2500, 500)
    assert ends.slave.acknowledge(0.0) == b""
    replica.flushed_offset = 1200
    assert ends.master.received(ends.slave.acknowledge(0.0), 0.0)
    assert (ends.master.acked_offset, ends.master.flushed_offset) == (2500, 1200)


@pytest.mark.parametrize(("offset", "flushed", "epoch"), [(2501, 0, EPOCH), (2500, 2501, EPOCH), (2000, 0, EPOCH + 1)])
def test_no_report_counts_beyond_what_was_sent_or_of_another_epoch(offset: int, flushed: int, epoch: int) -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT[:1000]))
    ends.talk()
    ends.master.acked_offset, ends.master.flushed_offset = 1000, 0
    with pytest.raises(ProtocolError):
        ends.master.received(frame(FrameType.REPORT, epoch, offset, REPORT.struct.pack(flushed)), 0.0)
    assert (ends.master.acked_offset, ends.master.flushed_offset) == (1000, 0)


def test_no_report_counts_before_the_slave_has_said_where_it_is() -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
    ends.master.received(ends.to_master, 0.0)
    proof = ends.slave.received(ends.to_slave(), 0.0)
    ends.master.received(proof, 0.0)
    with pytest.raises(ProtocolError, match="before it said"):
        ends.master.received(frame(FrameType.REPORT, EPOCH, 100, REPORT.struct.pack(0)), 0.0)
    assert ends.master.acked_offset == -1


def test_a_slave_takes_nothing_of_another_epoch() -> None:
    replica = SessionMemoryLog(CONTENT[:1000])
    ends = Ends(SessionMemoryLog(CONTENT[:1000]), replica)
    ends.talk()
    body = b"x" * 10
    with pytest.raises(ProtocolError, match="epoch"):
        ends.slave.received(frame(FrameType.LOG, EPOCH - 1, 1000, body), 0.0)
    assert replica.content == CONTENT[:1000]


def test_a_flipped_bit_anywhere_in_a_frame_is_seen() -> None:
    body = bytes(range(60))
    whole = frame_head(FrameType.LOG, EPOCH, 1000, body) + body
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        reader = FrameReader(from_slave=False)
        try:
            assert reader.feed(bytes(damaged)) == [], f"bit {bit}"
            assert 32 <= bit < 64, f"bit {bit}"  # in the size: the reader waits for a longer frame
            size = int.from_bytes(damaged[4:8], "big")
            if size < 100_000:
                with pytest.raises(ProtocolError):
                    reader.feed(bytes(size))
        except ProtocolError:
            continue


def test_limits_hold_before_anything_is_kept() -> None:
    for kind, from_slave, size in ((FrameType.LOG, False, 1 << 31), (FrameType.TAIL, True, (4 << 20) + 1)):
        with pytest.raises(ProtocolError):
            FrameReader(from_slave=from_slave).feed(HEAD.struct.pack(kind, 0, 0, size, EPOCH, 0, 0))
    for kind, from_slave in ((FrameType.LOG, True), (FrameType.REPORT, False)):
        with pytest.raises(ProtocolError):
            FrameReader(from_slave=from_slave).feed(frame(kind, EPOCH, 0))


# Diverged logs


@pytest.mark.parametrize("common", [10, 700, 990, 1000, 1500, 2390])
@pytest.mark.parametrize("length", [2400, 2500, 3000])
def test_a_slave_that_went_another_way_keeps_what_is_common_and_follows(common: int, length: int) -> None:
    replica = SessionMemoryLog(CONTENT[:common] + OTHER[: length - common])
    ends = Ends(SessionMemoryLog(CONTENT), replica)
    ends.talk(splitter(common))
    assert replica.content == CONTENT
    assert replica.cuts == [OTHER[: length - common]]
    assert ends.master.acked_offset == 2500


def test_only_whole_records_are_common() -> None:
    other = bytearray(CONTENT)
    other[1234] ^= 1
    replica = SessionMemoryLog(bytes(other))
    Ends(SessionMemoryLog(CONTENT), replica).talk()
    assert replica.content == CONTENT
    assert replica.cuts == [bytes(other[1230:])]


def test_a_slave_that_has_more_than_its_master_gives_it_up_unless_it_is_wanted() -> None:
    replica = SessionMemoryLog(CONTENT)
    Ends(SessionMemoryLog(CONTENT[:1000]), replica).talk()
    assert replica.content == CONTENT[:1000]
    assert replica.cuts == [CONTENT[1000:]]


@pytest.mark.parametrize("master", [b"", OTHER])
def test_logs_that_have_nothing_in_common_are_left_alone(master: bytes) -> None:
    replica = SessionMemoryLog(CONTENT)
    ends = Ends(SessionMemoryLog(master), replica)
    advice = "never empty this store" if not master else "hold data and have nothing in common"
    assert advice in refusal(ends)
    assert replica.content == CONTENT


def test_a_slave_whose_place_is_gone_is_told_so() -> None:
    ends = Ends(SessionMemoryLog(CONTENT, start=5000), SessionMemoryLog(CONTENT))
    assert "move the slave's store aside" in refusal(ends)


def test_a_checksum_is_of_all_bytes_or_of_none() -> None:
    log = SessionMemoryLog(CONTENT, start=1000)
    assert checksum(log, 1000, 2500) is not None
    assert checksum(log, 1000, 2501) is None
    assert checksum(log, 999, 2) is None
    assert checksum(log, 1000, 10) != checksum(log, 1001, 10)


# The tail that a master lost


def test_a_master_fetches_what_it_lost() -> None:
    log, replica = SessionMemoryLog(CONTENT[:700]), SessionMemoryLog(CONTENT)
    done: list[str] = []
    tail = TailRecovery(log, done.append)
    ends = Ends(log, replica, tail=tail)
    assert tail.is_waiting
    ends.talk(splitter(3))
    assert log.content == CONTENT
    assert replica.cuts == []
    assert done == ["a slave sent 1800 bytes"]
    assert ends.master.acked_offset == 2500


@pytest.mark.parametrize("start", [0, 5000])
def test_a_master_that_lost_all_takes_all_that_its_slave_keeps(start: int) -> None:
    log, replica = SessionMemoryLog(), SessionMemoryLog(CONTENT, start=start)
    done: list[str] = []
    ends = Ends(log, replica, tail=TailRecovery(log, done.append))
    ends.talk(splitter(4))
    assert (log.min_offset, bytes(log.content)) == (start, CONTENT)
    assert replica.cuts == []
    assert len(done) == 1
    assert ends.master.acked_offset == start + 2500


def test_a_slave_without_more_ends_the_wait() -> None:
    log = SessionMemoryLog(CONTENT)
    done: list[str] = []
    Ends(log, SessionMemoryLog(CONTENT[:300]), tail=TailRecovery(log, done.append)).talk()
    assert done == ["no slave has more"]


def test_where_a_copy_is_needed_the_wait_ends_with_one() -> None:
    log, replica = SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT[:300])
    done: list[int] = []
    tail = TailRecovery(log, lambda _: done.append(replica.end_offset), needs_copy=True)
    Ends(log, replica, tail=tail, batch_bytes=100).talk(splitter(5))
    assert done == [2500]
    # A slave that has everything only reports it.
    done.clear()
    Ends(log, replica, tail=TailRecovery(log, lambda _: done.append(0), needs_copy=True)).talk()
    assert done == [0]


def test_a_second_slave_waits_for_the_first_and_is_compared_again() -> None:
    log = SessionMemoryLog(CONTENT[:700])
    tail = TailRecovery(log)
    first, second = (
        Ends(log, SessionMemoryLog(CONTENT[:1500]), tail=tail),
        Ends(log, SessionMemoryLog(CONTENT[:900] + OTHER[:900]), slave=credentials(2), tail=tail),
    )
    assert tail.begin(first.master, 0, 1500)
    second.talk()
    assert second.master.requested_offset is None
    first.talk()
    assert log.content == CONTENT[:1500]
    second.talk()
    assert second.slave_log.content == CONTENT[:1500]


def test_what_a_master_got_while_a_slave_compared_is_not_cut() -> None:
    log, replica = SessionMemoryLog(CONTENT[:700]), SessionMemoryLog(CONTENT[:1500] + OTHER[:500])
    ends = Ends(log, replica)
    slave, master = ends.slave, ends.master
    master.received(ends.to_master, 0.0)
    to_master = slave.received(ends.to_slave(), 0.0)  # PROOF, RANGE
    while to_master[0] != FrameType.SURPLUS:
        master.received(to_master, 0.0)
        to_master = slave.received(ends.to_slave(), 0.0)
    # Another slave sent it while this one's SURPLUS was on its way.
    log.content += CONTENT[700:1500]
    ends.to_master = to_master
    ends.talk()
    assert replica.cuts == [OTHER[:500]]


def test_a_giver_that_leaves_is_forgotten() -> None:
    log = SessionMemoryLog(CONTENT[:700])
    tail = TailRecovery(log)
    assert tail.begin("one", 0, 1500)
    assert not tail.begin("two", 0, 1600)
    with pytest.raises(ProtocolError, match="not requested"):
        tail.take("two", 700, memoryview(b"x"))
    with pytest.raises(ProtocolError, match="not requested"):
        tail.take("one", 701, memoryview(b"x"))
    assert tail.is_fetching
    tail.left("one")
    assert not tail.is_fetching
    assert tail.begin("two", 0, 1600)
    tail.finish("time is up")
    assert not tail.is_waiting
    assert not tail.begin("two", 0, 1600)
    with pytest.raises(ProtocolError, match="not requested"):
        tail.take("two", 700, memoryview(b"x"))


# Tables


def test_tables_are_applied_once_the_log_that_they_stand_on_is_there() -> None:
    log, replica = SessionMemoryLog(CONTENT[:2000]), SessionMemoryLog(CONTENT[:10])
    ends = Ends(log, replica)
    ends.master.tables.begin([TableUpdate(0, "topics", b"{}"), TableUpdate(1900, "offsets", b"at 1900")])
    ends.master.tables.add(TableUpdate(2200, "offsets", b"at 2200"))
    seen: list[tuple[str, bool]] = []
    ends.slave._apply = lambda table: seen.append((table.name, replica.end_offset >= 1900))
    ends.talk(splitter(1))
    assert seen == [("topics", False), ("offsets", True)]
    log.content += CONTENT[2000:]
    ends.talk()
    assert len(seen) == 3


def test_a_table_ahead_of_its_log_is_not_applied() -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
    ends.talk()
    body = TableUpdate(2600, "offsets", b"").encode()
    with pytest.raises(ProtocolError, match="requires the log"):
        ends.slave.received(frame(FrameType.TABLE, EPOCH, 2600, body), 0.0)
    assert ends.applied == []


def test_a_slave_that_is_far_behind_gets_all_tables_later() -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
    tables = ends.master.tables
    assert tables.wants_all
    tables.begin([TableUpdate(9000, "offsets", b"all")])
    for number in range(100):
        tables.add(TableUpdate(9000 + number, "offsets", b"%d" % number))
    assert not tables.wants_all  # queued tables go first
    assert 10 < len(tables.take(10_000)) < 100
    assert tables.wants_all
    tables.add(TableUpdate(10_000, "offsets", b"alone it means nothing"))
    assert tables.wants_all
    assert tables.take(20_000) == []


def test_a_table_in_a_hurry_takes_the_place_of_what_is_queued_of_it() -> None:
    log, replica = SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT[:10])
    ends = Ends(log, replica)
    tables = ends.master.tables
    tables.begin([TableUpdate(1900, "topics", b"old"), TableUpdate(2000, "offsets", b"{}")])
    tables.hurry(TableUpdate(0, "topics", b"new"), "topics", 1)
    ends.talk()
    assert ends.applied == [TableContent("topics", b"new"), TableContent("offsets", b"{}")]


def test_the_mark_of_a_table_is_known_once_it_is_on_its_way() -> None:
    tables = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT)).master.tables
    tables.begin([TableUpdate(1900, "groups", b"all", 1)])
    assert tables.take(1899) == [] and tables.mark("groups") is None
    tables.take(1900)
    assert tables.mark("groups") == 1
    for number in range(2, 100):
        tables.add(TableUpdate(2000, "groups", b"new", number))
    tables.take(1999)
    assert tables.mark("groups") == 1
    tables.take(2000)
    assert 1 < tables.mark("groups") < 99  # the last were dropped


def test_a_table_without_a_name_is_refused() -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
    ends.talk()
    for body in (b"", b"\x00", b"\x05abc", b"\x01\xff"):
        with pytest.raises(ProtocolError):
            ends.slave.received(frame(FrameType.TABLE, EPOCH, 0, body), 0.0)
    ends.slave.received(frame(FrameType.TABLE, EPOCH, 0, b"\x01a"), 0.0)
    assert ends.applied == [TableContent("a", b"")]


# Order of frames


def test_what_nobody_asked_for_ends_the_session() -> None:
    for kind, body in (
        (FrameType.TRUNCATE, b""),
        (FrameType.FETCH_TAIL, PIECE.struct.pack(10)),
        (FrameType.CHECKSUM, bytes(8)),
    ):
        replica = SessionMemoryLog(CONTENT)
        ends = Ends(SessionMemoryLog(CONTENT), replica)
        ends.talk()
        with pytest.raises(ProtocolError):
            ends.slave.received(frame(kind, EPOCH, 1000, body), 0.0)
        assert replica.content == CONTENT
    for kind, body in ((FrameType.RESUME, b""), (FrameType.TAIL, b"x" * 10), (FrameType.SLAVE_TABLES_END, b"")):
        ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
        ends.talk()
        with pytest.raises(ProtocolError):
            ends.master.received(frame(kind, EPOCH, 1000, body), 0.0)


def test_heartbeats_go_both_ways() -> None:
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT))
    ends.talk()
    assert ends.to_slave(4.9) == b""
    heartbeat = ends.to_slave(5.0)
    assert ends.slave.received(heartbeat, 5.0) == b""
    assert (ends.slave.master_offset, ends.slave.master_confirm_offset) == (2500, 2500)
    assert ends.slave.due(4.9) == b""
    assert not ends.master.received(ends.slave.due(5.0), 5.0)
    assert not ends.master.is_expired(25.0)
    assert not ends.slave.is_expired(25.0)
    assert ends.slave.is_expired(25.1)


# The tables that a master lost with its log

TABLES = [TableUpdate(0, "topics", b"t" * 2_500_000), TableUpdate(0, "groups", b"g"), TableUpdate(0, "modes", b"")]


def empty_master(replica: SessionMemoryLog) -> tuple[Ends, list[object], list[str]]:
    """Return an empty master with its slave, the ids of empty slaves, and why the recovery ended."""
    log, heard, done = SessionMemoryLog(), [], []  # type: ignore[var-annotated] # as the signature says
    tail = TailRecovery(log, done.append, on_empty_slave=heard.append)
    return Ends(log, replica, tail=tail, tables=TABLES), heard, done


def test_a_master_that_lost_all_takes_the_tables_before_it_sends_any() -> None:
    ends, heard, done = empty_master(SessionMemoryLog(CONTENT))
    ends.talk(splitter(3))
    assert [(one.name, one.content) for one in ends.given] == [(one.name, one.content) for one in TABLES]
    assert done == ["a slave sent its log and its tables"]
    assert heard == []
    assert ends.slave.is_streaming
    assert ends.applied == []


def test_an_empty_slave_does_not_end_the_wait_of_an_empty_master() -> None:
    ends, heard, done = empty_master(SessionMemoryLog())
    ends.talk()
    assert (set(heard), done, ends.given) == ({1}, [], [])
    assert ends.tail.is_waiting


def test_a_slave_that_left_before_it_sent_its_tables_sends_them_when_it_returns() -> None:
    ends, _, done = empty_master(SessionMemoryLog(CONTENT))
    while not ends.tail.needs_tables or ends.tail.wanted(ends.master) is not None:
        ends.turn()
    ends.tail.left(ends.master)
    assert ends.tail.is_waiting
    again = Ends(ends.master_log, SessionMemoryLog(CONTENT), tail=ends.tail, tables=TABLES)
    again.talk()
    assert [one.name for one in again.given] == ["topics", "groups", "modes"]
    assert done == ["a slave sent its log and its tables"]
    assert again.slave.is_streaming


def test_a_second_slave_gives_no_table_while_the_first_is_giving() -> None:
    ends, _, done = empty_master(SessionMemoryLog(CONTENT))
    while not ends.tail.needs_tables:
        ends.turn()
    second = Ends(ends.master_log, SessionMemoryLog(CONTENT[:10]), tail=ends.tail, slave=credentials(2), tables=TABLES)
    assert "another slave is sending this master" in refusal(second)
    assert second.given == []
    ends.talk()
    assert done


def test_pieces_that_fit_no_table_are_refused() -> None:
    for missing, piece, then in ((5, b"", 0), (5, b"abc", 5), (MAX_BODY_BYTES, b"abc", 0)):
        assembly = TableAssembly()
        with pytest.raises(ProtocolError, match="fits no table"):
            assembly.add(missing, memoryview(piece))
            assembly.add(then, memoryview(b"d"))
    assembly = TableAssembly()
    assembly.add(5, memoryview(b"abc"))
    with pytest.raises(ProtocolError, match="5 bytes too early"):
        assembly.finish()
