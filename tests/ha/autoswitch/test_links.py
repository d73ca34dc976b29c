"""Both ends of RocketMQ's protocol of controller mode: epochs, consistent point, confirm offset, flags, time."""

import random

import pytest

from ha.autoswitch.messages import MasterHandshake, SlaveHandshake, SlaveReport, transfer_head
from ha.epochs.epoch_history import Epoch
from sprocket.common.errors import ProtocolError, StoreError
from tests.ha.autoswitch.ends import EpochMemoryLog, Pair, history, splitter
from tests.tiers import seeds

CONTENT = bytes(number % 251 for number in range(2500))
EPOCHS = ((1, 0), (3, 700), (4, 1500))


def other(size: int, start: int) -> bytes:
    """Return bytes that differ from `CONTENT` after `start`."""
    return CONTENT[:start] + bytes(255 - one for one in CONTENT[start:size])


@pytest.mark.parametrize("seed", seeds(20))
def test_a_slave_ends_with_the_masters_log_and_epochs(seed: int) -> None:
    choose = random.Random(seed)
    end = choose.randrange(0, 250) * 10
    slave = EpochMemoryLog(CONTENT[:end], *(one for one in EPOCHS if one[1] < end))
    pair = Pair(
        EpochMemoryLog(CONTENT, *EPOCHS), slave, batch_bytes=choose.randrange(1, 400), handshake=SlaveHandshake(2)
    )
    pair.talk(splitter(seed))
    assert (bytes(slave.content), slave.history) == (CONTENT, history(*EPOCHS))
    assert pair.master.acked_offset == 2500
    assert pair.slave.admits_polling


@pytest.mark.parametrize(
    ("own", "epochs", "kept"),
    [
        pytest.param(other(1800, 1600), ((1, 0), (3, 700), (4, 1500)), None, id="differs within an epoch"),
        pytest.param(other(1600, 1500), ((1, 0), (3, 700)), 1500, id="the old master's tail"),
        pytest.param(other(1600, 900), ((1, 0), (2, 900)), 700, id="a master that nobody followed"),
        pytest.param(CONTENT + b"0123456789", EPOCHS, 2500, id="longer in the last epoch"),
        pytest.param(CONTENT[:1800], ((1, 0), (3, 700), (4, 1500), (9, 1800)), 1800, id="an epoch without a byte"),
        pytest.param(CONTENT[:1800], (), 1800, id="no epochs"),
    ],
)
def test_a_slave_keeps_what_both_have(own: bytes, epochs: tuple[tuple[int, int], ...], kept: int | None) -> None:
    slave = EpochMemoryLog(own, *epochs)
    pair = Pair(EpochMemoryLog(CONTENT, *EPOCHS), slave)
    if kept is None:
        with pytest.raises(ProtocolError, match="differs from the master's"):
            pair.talk()
        assert (bytes(slave.content), slave.history) == (own, history(*epochs))
        return
    pair.talk()
    assert (bytes(slave.content), slave.history) == (CONTENT, history(*EPOCHS))
    assert slave.cuts == ([own[kept:]] if kept < len(own) else [])


@pytest.mark.parametrize(
    ("content", "epochs"), [(CONTENT[:500], ((2, 0),)), (b"", ()), (b"", ((5, 0),)), (CONTENT[:900], ())]
)
def test_a_slave_without_a_common_epoch_keeps_its_log(content: bytes, epochs: tuple[tuple[int, int], ...]) -> None:
    slave = EpochMemoryLog(CONTENT[:1000], (1, 0))
    with pytest.raises(ProtocolError, match="Delete nothing yet"):
        Pair(EpochMemoryLog(content, *epochs), slave).talk()
    assert (bytes(slave.content), slave.history, slave.cuts) == (CONTENT[:1000], history((1, 0)), [])


def test_a_failed_truncation_begins_nothing() -> None:
    class Failing(EpochMemoryLog):
        def cut(self, offset: int, reason: str) -> None:
            raise StoreError(f"restart to cut at {offset}")

    slave = Failing(other(1600, 1500), (1, 0), (3, 700), (4, 1550))
    pair = Pair(EpochMemoryLog(CONTENT, (1, 0), (3, 700), (5, 1500)), slave)
    with pytest.raises(StoreError, match="cut at 1500"):
        pair.talk()
    assert slave.history == history((1, 0), (3, 700), (4, 1550))
    assert pair.slave.acknowledge(0.0) == pair.slave.due(100.0) == b""


def test_epochs_that_the_master_begins_later_are_noted_with_their_first_byte() -> None:
    master, slave = EpochMemoryLog(CONTENT[:500], (1, 0)), EpochMemoryLog()
    pair = Pair(master, slave)
    pair.talk()
    master.history = master.history.begun(Epoch(2, 500))
    pair.talk(now=6.0)
    assert slave.history == history((1, 0))
    master.history = master.history.begun(Epoch(3, 500))
    master.content += CONTENT[500:700]
    pair.talk(now=7.0)
    master.history = master.history.begun(Epoch(4, 700))
    master.content += CONTENT[700:]
    pair.talk(now=8.0)
    assert (slave.history, bytes(slave.content)) == (history((1, 0), (3, 500), (4, 700)), CONTENT)


def test_the_last_piece_of_an_epoch_may_have_the_next_epochs_number() -> None:
    """As from RocketMQ's master: it changes the epoch before it writes the head."""
    slave = EpochMemoryLog()
    link = Pair(EpochMemoryLog(), slave).slave
    link.received(MasterHandshake(900, history((1, 0), (2, 700))).encode(), 0.0)
    early = Epoch(2, 700)
    assert link.received(transfer_head(0, 700, early, 0) + CONTENT[:700], 0.0) == SlaveReport(700).encode()
    assert slave.history == history((1, 0))
    link.received(transfer_head(700, 200, early, 0) + CONTENT[700:900], 0.0)
    assert slave.history == history((1, 0), (2, 700))
    # A later epoch, which the handshake did not tell.
    link.received(transfer_head(900, 100, Epoch(5, 1000), 0) + CONTENT[900:1000], 0.0)
    assert slave.history == history((1, 0), (2, 700))
    link.received(transfer_head(1000, 100, Epoch(5, 1000), 0) + CONTENT[1000:1100], 0.0)
    assert slave.history == history((1, 0), (2, 700), (5, 1000))
    assert bytes(slave.content) == CONTENT[:1100]


def test_no_piece_crosses_an_epoch_and_each_has_its_own() -> None:
    master = Pair(EpochMemoryLog(CONTENT, (2, 100), (3, 700), (4, 1500)), EpochMemoryLog(), batch_bytes=1000).master
    master.received(SlaveHandshake(2).encode() + SlaveReport(50).encode(), 0.0)
    master.next_piece(0.0)
    heads = []
    while piece := master.next_piece(0.0):
        heads.append((piece[0], len(piece[1])))
    spans = [(50, 100, None), (100, 700, Epoch(2, 100)), (700, 1000, Epoch(3, 700)), (1000, 1500, Epoch(3, 700)),
             (1500, 2000, Epoch(4, 1500)), (2000, 2500, Epoch(4, 1500))]  # fmt: skip
    assert heads == [(transfer_head(at, to - at, epoch, 2500), to - at) for at, to, epoch in spans]


def test_a_heartbeat_tells_the_epoch_of_the_last_byte() -> None:
    log = EpochMemoryLog(b"", (1, 0))
    pair = Pair(log, EpochMemoryLog())
    pair.talk()
    assert pair.master.next_piece(5.0) == [transfer_head(0, 0, None, 0)]
    log.content += CONTENT[:70]
    log.history = history((1, 0), (2, 70))
    pair.talk(now=6.0)
    assert pair.master.next_piece(11.0) == [transfer_head(70, 0, Epoch(1, 0), 70)]


def test_the_masters_confirm_offset_limits_the_slaves_consumers() -> None:
    master, slave = EpochMemoryLog(CONTENT, *EPOCHS), EpochMemoryLog()
    master.confirm_to = 600
    pair = Pair(master, slave)
    pair.talk()
    assert (slave.confirms[0], slave.confirms[-1]) == (0, 600)
    master.confirm_to = 2500
    pair.talk(now=5.0)
    assert slave.confirms[-1] == 2500


@pytest.mark.parametrize(("from_last", "start"), [(True, 2000), (False, 0)])
def test_an_empty_slave_begins_where_its_flag_says(from_last: bool, start: int) -> None:
    slave = EpochMemoryLog()
    Pair(EpochMemoryLog(CONTENT, *EPOCHS), slave, handshake=SlaveHandshake(2, from_last_segment=from_last)).talk()
    assert (slave.start, bytes(slave.content)) == (start, CONTENT[start:])
    assert slave.history == history(*EPOCHS)


def test_a_slave_tells_its_id_and_whether_it_learns() -> None:
    pair = Pair(EpochMemoryLog(CONTENT, *EPOCHS), EpochMemoryLog(), handshake=SlaveHandshake(7, is_learner=True))
    pair.talk()
    assert pair.master.identity is not None
    assert pair.master.identity.place == ("C", "a", 7)
    assert pair.master.is_learner


def test_a_repeated_handshake_is_answered_once() -> None:
    master = Pair(EpochMemoryLog(CONTENT, *EPOCHS), EpochMemoryLog()).master
    shake = SlaveHandshake(2).encode()
    for _ in range(3):
        master.received(shake, 0.0)
    assert master.next_piece(0.0) == [MasterHandshake(2500, history(*EPOCHS)).encode()]
    assert master.next_piece(0.0) == []


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([SlaveReport(0)], "before its handshake"),
        ([SlaveHandshake(1)], "own brokerId"),
        ([SlaveHandshake(2), SlaveReport(10), SlaveHandshake(2)], "after its first report"),
        ([SlaveHandshake(2), SlaveReport(2501)], "after the master's"),
        ([SlaveHandshake(2), SlaveReport(10), SlaveReport(11)], "was sent up to 10"),
    ],
)
def test_a_slave_that_cannot_be_right_is_sent_away(messages: list[SlaveHandshake | SlaveReport], reason: str) -> None:
    master = Pair(EpochMemoryLog(CONTENT, *EPOCHS), EpochMemoryLog()).master
    with pytest.raises(ProtocolError, match=reason):
        master.received(b"".join(one.encode() for one in messages), 0.0)


def sent_to(slave: EpochMemoryLog, *messages: bytes) -> None:
    Pair(EpochMemoryLog(), slave).slave.received(b"".join(messages), 0.0)


SHAKE = MasterHandshake(900, history((1, 0))).encode()
TAIL = transfer_head(1, 99, Epoch(1, 0), 0) + CONTENT[1:100]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([transfer_head(0, 0, None, 0)], "before its handshake"),
        ([SHAKE, SHAKE], "handshake twice"),
        ([SHAKE, transfer_head(100, 1, Epoch(1, 0), 0) + b"x"], "sends from 100, the slave's log ends at 1"),
        ([SHAKE, TAIL, transfer_head(99, 1, Epoch(1, 0), 0) + b"x"], "sends from 99, the slave's log ends at 100"),
        ([SHAKE, TAIL, transfer_head(100, 0, Epoch(1, 5), 0)], "now says"),
    ],
)
def test_a_master_that_cannot_be_right_is_left(messages: list[bytes], reason: str) -> None:
    slave = EpochMemoryLog(CONTENT[:100], (1, 0))
    with pytest.raises(ProtocolError, match=reason):
        sent_to(slave, *messages)
    assert (bytes(slave.content), slave.history) == (CONTENT[:100], history((1, 0)))


def test_a_slave_before_its_masters_epochs_is_told_what_to_do() -> None:
    slave = EpochMemoryLog(CONTENT[:100])
    with pytest.raises(ProtocolError, match="epochs begin at 800"):
        Pair(EpochMemoryLog(CONTENT, (1, 800)), slave).talk()


def test_heartbeats_go_both_ways_and_silence_ends_the_connection() -> None:
    pair = Pair(EpochMemoryLog(CONTENT, *EPOCHS), EpochMemoryLog(CONTENT, *EPOCHS))
    assert pair.slave.due(6.0) == b""
    pair.talk()
    assert pair.slave.due(4.9) == b""
    assert pair.slave.due(5.0) == SlaveReport(2500).encode()
    assert pair.master.next_piece(4.9) == []
    assert pair.master.next_piece(5.0) == [transfer_head(2500, 0, Epoch(4, 1500), 2500)]
    assert not pair.master.is_expired(20.0)
    assert pair.master.is_expired(20.1)
    assert pair.slave.is_expired(20.1)
