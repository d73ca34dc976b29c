"""Sessions in controller mode: epochs tell where logs diverge, and no slave goes back to an older master."""

import random

import pytest

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.hello import Kind, decode_hello, sealed
from ha.session import EPOCH, MAX_BODY_BYTES, STATE, FrameType, encode_history, frame
from sprocket.common.errors import DiskFull, ProtocolError
from tests.ha.sessions import RECORD, Ends, SessionMemoryLog, credentials, refusal
from tests.sim.sim_disk import ROOT, Fault, SimDisk
from tests.tiers import seeds

PATH = ROOT / "epochs"
CONTENT = random.Random(5).randbytes(3000)
OTHER = random.Random(6).randbytes(3000)


def epoch_file(*epochs: tuple[int, int], disk: SimDisk | None = None) -> EpochFile:
    file = EpochFile(disk or SimDisk(), PATH, 0)
    for epoch in epochs:
        file.begin(Epoch(*epoch))
    return file


def history(*epochs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(Epoch(*epoch) for epoch in epochs)


def ends_of(
    master: bytes, master_epochs: EpochFile, slave: bytes, slave_epochs: EpochFile, secret: bytes = b""
) -> Ends:
    return Ends(
        SessionMemoryLog(master), SessionMemoryLog(slave), master_epochs=master_epochs, slave_epochs=slave_epochs,
        master=credentials(0, secret), slave=credentials(1, secret),
    )  # fmt: skip


# What both have in common


@pytest.mark.parametrize("slave_end", [0, 10, 500, 510, 2000, 2010, 3000])
def test_a_slave_that_lags_takes_over_the_log_and_its_epochs(slave_end: int) -> None:
    master_epochs = epoch_file((1, 0), (2, 500), (4, 2000))
    slave_epochs = epoch_file(
        *((number, start) for number, start in ((1, 0), (2, 500), (4, 2000)) if start < slave_end)
    )
    ends = ends_of(CONTENT, master_epochs, CONTENT[:slave_end], slave_epochs)
    ends.talk()
    assert ends.slave_log.content == CONTENT
    assert slave_epochs.history == master_epochs.history
    assert ends.master.acked_offset == 3000
    assert not ends.slave_log.cuts


@pytest.mark.parametrize("tail", [10, 500, 2000])
def test_a_tail_of_a_replaced_master_is_truncated_where_the_next_epoch_begins(tail: int) -> None:
    master_epochs = epoch_file((1, 0), (3, 1000))
    slave_epochs = epoch_file((1, 0), (2, 1000))
    ends = ends_of(CONTENT, master_epochs, CONTENT[:1000] + OTHER[:tail], slave_epochs)
    ends.talk()
    assert ends.slave_log.content == CONTENT
    assert ends.slave_log.cuts == [OTHER[:tail]]
    assert slave_epochs.history == master_epochs.history


def test_bytes_that_happen_to_be_equal_do_not_count_across_epochs() -> None:
    """The epochs say that the tail was never the master's, so it is cut although its bytes are the same."""
    slave_epochs = epoch_file((1, 0), (2, 1000))
    ends = ends_of(CONTENT, epoch_file((1, 0), (3, 1000)), CONTENT[:1200], slave_epochs)
    ends.talk()
    assert ends.slave_log.cuts == [CONTENT[1000:1200]]
    assert ends.slave_log.content == CONTENT
    assert slave_epochs.history == history((1, 0), (3, 1000))


def test_a_slave_with_more_than_its_master_truncates_it() -> None:
    slave_epochs = epoch_file((1, 0))
    ends = ends_of(CONTENT[:1000], epoch_file((1, 0), (2, 1000)), CONTENT[:1500], slave_epochs)
    ends.talk()
    assert ends.slave_log.content == CONTENT[:1000]
    assert slave_epochs.history == history((1, 0))
    ends.master_log.content += OTHER[:50]
    ends.talk()
    assert ends.slave_log.content == CONTENT[:1000] + OTHER[:50]
    assert slave_epochs.history == history((1, 0), (2, 1000))


def test_epochs_that_lie_are_found_out_by_the_checksum() -> None:
    """The slave's history says that all of its log is the master's; half of it is not."""
    slave_epochs = epoch_file((1, 0), (2, 2000))
    ends = ends_of(CONTENT, epoch_file((1, 0), (2, 2000)), CONTENT[:1000] + OTHER[:1500], slave_epochs)
    ends.talk()
    assert ends.slave_log.cuts == [OTHER[:1500]]
    assert ends.slave_log.content == CONTENT


@pytest.mark.parametrize("slave_end", [600, 3000])
def test_a_lost_history_is_rebuilt_from_the_masters_once_the_logs_were_compared(slave_end: int) -> None:
    slave_epochs = epoch_file()
    ends = ends_of(CONTENT, epoch_file((3, 0), (9, 600)), CONTENT[:slave_end], slave_epochs)
    ends.talk()
    assert ends.slave_log.content == CONTENT
    assert slave_epochs.history == history((3, 0), (9, 600))
    assert not ends.slave_log.cuts


def test_logs_without_a_common_epoch_are_truncated_whole_if_their_histories_are_whole() -> None:
    """The first master of a new group died before its slave had anything; the slave leads."""
    slave_epochs = epoch_file((1, 0))
    ends = ends_of(CONTENT, epoch_file((2, 0)), OTHER[:400], slave_epochs)
    ends.talk()
    assert ends.slave_log.cuts == [OTHER[:400]]
    assert ends.slave_log.content == CONTENT
    assert slave_epochs.history == history((2, 0))


def test_an_empty_master_with_a_whole_history_truncates_too() -> None:
    slave_epochs = epoch_file((1, 0))
    ends = ends_of(b"", epoch_file((2, 0)), OTHER[:400], slave_epochs)
    ends.talk()
    assert ends.slave_log.cuts == [OTHER[:400]]
    assert slave_epochs.history == EpochHistory()


@pytest.mark.parametrize("own", [[], [(1, 10)]])
def test_logs_with_nothing_in_common_stay_untouched_where_histories_do_not_tell(own: list[tuple[int, int]]) -> None:
    ends = ends_of(CONTENT, epoch_file((2, 0)), OTHER[:400], epoch_file(*own))
    assert "nothing in common" in refusal(ends)
    assert ends.slave_log.content == OTHER[:400]


def test_a_slave_whose_end_the_master_no_longer_keeps_has_its_own_epochs_still() -> None:
    slave_epochs = epoch_file((1, 0))
    ends = Ends(
        SessionMemoryLog(CONTENT[2000:], 2000), SessionMemoryLog(OTHER[:600]),
        master_epochs=epoch_file((3, 2000)), slave_epochs=slave_epochs,
    )  # fmt: skip
    assert "the master's begins at 2000" in refusal(ends)
    assert slave_epochs.history == history((1, 0))
    assert ends.slave_log.content == OTHER[:600]


# Order on the disk


def test_an_epoch_is_on_the_disk_before_its_first_byte_is_appended() -> None:
    slave_epochs = epoch_file()
    log = SessionMemoryLog()
    seen: list[tuple[int, EpochHistory]] = []
    append = log.append

    def watched(from_offset: int, pieces: list[memoryview]) -> None:
        append(from_offset, pieces)
        seen.append((log.end_offset, slave_epochs.history))

    log.append = watched  # type: ignore[method-assign, assignment] # only this log is watched
    master_epochs = epoch_file((1, 0), (2, 500), (4, 2000))
    ends = Ends(SessionMemoryLog(CONTENT), log, master_epochs=master_epochs, slave_epochs=slave_epochs, batch_bytes=37)
    ends.talk(lambda data: [data[at : at + 53] for at in range(0, len(data), 53)])
    assert len(seen) > 20
    for end, history_then in seen:
        assert history_then == master_epochs.history.cut_at(end)


def test_nothing_of_an_epoch_is_appended_if_its_start_cannot_be_written() -> None:
    disk = SimDisk()
    slave_epochs = epoch_file((1, 0), disk=disk)
    ends = ends_of(CONTENT[:600], epoch_file((1, 0), (2, 500)), CONTENT[:500], slave_epochs)
    disk.fault = lambda kind, path: Fault(DiskFull)
    with pytest.raises(DiskFull):
        ends.talk()
    assert ends.slave_log.content == CONTENT[:500]
    assert slave_epochs.history == history((1, 0))


# Old masters


@pytest.mark.parametrize("secret", [b"", b"secret"])
def test_a_slave_refuses_a_master_of_an_older_epoch_and_tells_it(secret: bytes) -> None:
    slave_epochs = epoch_file((1, 0))
    slave_epochs.accept(7)
    ends = ends_of(CONTENT, epoch_file((1, 0), (6, 1000)), CONTENT[:500], slave_epochs, secret)
    assert "epoch 6 is over" in refusal(ends)
    assert ends.slave_log.content == CONTENT[:500]
    assert ends.newer == [7]
    assert slave_epochs.history == history((1, 0))


def test_a_slave_takes_nothing_of_an_older_epoch_whatever_the_master_does() -> None:
    slave_epochs = epoch_file((1, 0))
    slave_epochs.accept(7)
    ends = ends_of(CONTENT, epoch_file((1, 0), (6, 1000)), CONTENT[:500], slave_epochs)
    ends.master.received(ends.to_master, 0.0)
    ends.slave.received(ends.to_slave(), 0.0)
    with pytest.raises(ProtocolError, match="outdated"):
        ends.slave.received(frame(FrameType.EPOCHS, 6, 0, encode_history(history((1, 0), (6, 1000)))), 0.0)
    with pytest.raises(ProtocolError, match="outdated"):
        ends.slave.received(frame(FrameType.STATE, 6, 3000, STATE.struct.pack(0, 3000, 3000)), 0.0)
    assert ends.slave_log.content == CONTENT[:500]
    assert (slave_epochs.accepted, slave_epochs.history) == (7, history((1, 0)))


def test_an_accepted_epoch_counts_before_it_wrote_anything() -> None:
    slave_epochs = epoch_file((1, 0))
    ends_of(CONTENT, epoch_file((1, 0), (8, 3000)), CONTENT, slave_epochs).talk()
    assert (slave_epochs.accepted, slave_epochs.history) == (8, history((1, 0)))
    assert "epoch 7 is over" in refusal(ends_of(CONTENT, epoch_file((1, 0), (7, 3000)), CONTENT, slave_epochs))


def test_nobody_is_told_of_a_newer_epoch_by_a_slave_without_the_secret() -> None:
    slave_epochs = epoch_file((1, 0))
    slave_epochs.accept(1 << 30)
    ends = Ends(
        SessionMemoryLog(CONTENT), SessionMemoryLog(), master_epochs=epoch_file((1, 0)), slave_epochs=slave_epochs,
        master=credentials(0, b"secret"), slave=credentials(1, b"guess"),
    )  # fmt: skip
    assert "proof is wrong" in refusal(ends)
    assert not ends.newer


def test_a_session_of_an_epoch_that_is_over_ends() -> None:
    master_epochs = epoch_file((1, 0))
    ends = ends_of(CONTENT, master_epochs, b"", epoch_file())
    master_epochs.begin(Epoch(2, 3000))
    assert "epoch 1 of this master is over" in refusal(ends)


# Both ends must be in controller mode


@pytest.mark.parametrize("of_master", [True, False])
def test_the_two_versions_do_not_mix(of_master: bool) -> None:
    one = epoch_file((1, 0))
    ends = Ends(
        SessionMemoryLog(CONTENT), SessionMemoryLog(),
        master_epochs=one if of_master else None, slave_epochs=None if of_master else one,
    )  # fmt: skip
    found = refusal(ends)
    assert "set enableControllerMode and controllerAddr alike" in found
    assert ("this master is in controller mode" in found) is of_master


def test_a_peer_of_the_first_version_sees_the_bytes_that_it_knows() -> None:
    """A slave outside controller mode says HELLO as before, and the frames with epochs do not occur."""
    ends = Ends(SessionMemoryLog(CONTENT), SessionMemoryLog())
    assert ends.to_master[7] == 0x100 - 1  # the magic number's last byte: version 1
    ends.talk()
    assert ends.slave_log.content == CONTENT


# Peers that break the rules


@pytest.mark.parametrize(
    "body",
    [
        encode_history(history((1, 0))),
        b"",
        bytes(15),
        EPOCH.struct.pack(2, 10) + EPOCH.struct.pack(1, 20),
        EPOCH.struct.pack(2, -1),
        EPOCH.struct.pack(0, 0) * 10_001,
    ],
)
def test_no_other_histories_are_taken_from_a_master(body: bytes) -> None:
    assert len(body) < MAX_BODY_BYTES
    ends = ends_of(CONTENT, epoch_file((2, 0)), b"", epoch_file())
    ends.master.received(ends.to_master, 0.0)
    ends.slave.received(ends.to_slave(), 0.0)
    with pytest.raises(ProtocolError):
        ends.slave.received(frame(FrameType.EPOCHS, 2, 0, body), 0.0)


def test_a_slave_that_resumes_where_its_epochs_do_not_fit_is_refused() -> None:
    ends = ends_of(CONTENT, epoch_file((1, 0), (3, 1000)), CONTENT[:1000], epoch_file((1, 0)))
    ends.talk()
    other = ends_of(CONTENT, epoch_file((1, 0), (3, 1000)), CONTENT[:1000], epoch_file((1, 0)))
    other.master.received(other.to_master, 0.0)
    other.master.received(other.slave.received(other.to_slave(), 0.0), 0.0)
    liar = frame(FrameType.SLAVE_EPOCHS, 3, 0, encode_history(history((1, 0), (2, 1000))))
    other.master.received(liar + frame(FrameType.RESUME, 3, 1200), 0.0)
    assert "a slave resumes at 1200" in other.master.refusal
    assert other.master.requested_offset is None


def test_a_hello_with_a_wrong_version_is_named() -> None:
    hello = Ends(SessionMemoryLog(), SessionMemoryLog()).to_master
    with pytest.raises(ProtocolError, match="version 1 with"):
        Ends(SessionMemoryLog(), SessionMemoryLog()).master.received(sealed(Kind.HELLO, b"", 3) + hello, 0.0)
    with pytest.raises(ProtocolError):
        decode_hello(hello[13:-4], 2)


# Random masters


@pytest.mark.parametrize("seed", seeds(100))
def test_after_each_session_both_logs_and_histories_are_equal(seed: int) -> None:
    """Replicas lead in turns and append, some follow, some lose an unsynced end; no byte of another epoch is left."""
    rng = random.Random(seed)
    logs = [SessionMemoryLog() for _ in range(3)]
    disks = [SimDisk(seed + at) for at in range(3)]
    files = [EpochFile(disk, PATH, 0) for disk in disks]
    for epoch in range(1, 9):
        leader = rng.randrange(3)
        files[leader].begin(Epoch(epoch, logs[leader].end_offset))
        for _ in range(rng.randrange(4)):
            logs[leader].content += rng.randbytes(RECORD * rng.randrange(1, 30))
            for slave in {rng.randrange(3) for _ in range(2)} - {leader}:
                files[slave].accept(epoch - 1)
                Ends(
                    logs[leader], logs[slave], master_epochs=files[leader], slave_epochs=files[slave],
                    batch_bytes=rng.randrange(1, 400),
                ).talk()  # fmt: skip
                assert logs[slave].content == logs[leader].content
                assert files[slave].history == files[leader].history.cut_at(logs[slave].end_offset)
        crashed = rng.randrange(3)
        lost = min(len(logs[crashed].content), RECORD * rng.randrange(20))
        if lost:
            del logs[crashed].content[-lost:]
            logs[crashed].flushed_offset = min(logs[crashed].flushed_offset, logs[crashed].end_offset)
        files[crashed] = EpochFile(disks[crashed], PATH, logs[crashed].end_offset)
