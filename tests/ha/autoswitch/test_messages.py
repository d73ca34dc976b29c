"""The messages of RocketMQ's protocol of controller mode: their bytes, their readers, and what is refused."""

import struct
from collections.abc import Callable

import pytest

from ha.autoswitch.messages import (
    MAX_EPOCHS,
    MAX_PIECE_BYTES,
    MasterHandshake,
    MasterMessageReader,
    SlaveHandshake,
    SlaveMessageReader,
    SlaveReport,
    transfer_head,
)
from ha.epochs.epoch_history import Epoch
from sprocket.common.errors import ProtocolError
from tests.ha.autoswitch.ends import history


def test_the_bytes_are_rocketmqs() -> None:
    assert SlaveHandshake(3, from_last_segment=True, is_learner=True).encode() == struct.pack(">ihhq", 1, 1, 1, 3)
    assert SlaveHandshake(3).encode() == struct.pack(">ihhq", 1, 0, 0, 3)
    assert SlaveReport(1 << 40).encode() == struct.pack(">iq", 2, 1 << 40)
    shake = MasterHandshake(900, history((1, 0), (4, 700))).encode()
    assert shake == struct.pack(">iiqi" + "iq" * 2, 1, 24, 900, 4, 1, 0, 4, 700)
    assert MasterHandshake(0, history()).encode() == struct.pack(">iiqi", 1, 0, 0, -1)
    assert transfer_head(100, 5, Epoch(4, 700), 90) == struct.pack(">iiqiqq", 2, 5, 100, 4, 700, 90)
    assert transfer_head(100, 0, None, 90) == struct.pack(">iiqiqq", 2, 0, 100, -1, 0, 90)


@pytest.mark.parametrize("step", [1, 3, 11, 12, 13, 1000])
def test_messages_are_read_however_they_are_split(step: int) -> None:
    sent = SlaveHandshake(7, is_learner=True).encode() + SlaveReport(5).encode() + SlaveReport(6).encode()[:-1]
    reader = SlaveMessageReader()
    found = [one for at in range(0, len(sent), step) for one in reader.feed(sent[at : at + step])]
    assert found == [SlaveHandshake(7, is_learner=True), SlaveReport(5)]
    assert reader.pending_bytes == 11

    epochs = history((1, 0), (4, 700))
    sent = MasterHandshake(900, epochs).encode() + transfer_head(4, 2, Epoch(4, 700), 1) + b"xy"
    sent += transfer_head(-1, 0, None, -1) + b"\0"
    masters = MasterMessageReader()
    first, second, third = (one for at in range(0, len(sent), step) for one in masters.feed(sent[at : at + step]))
    assert first == MasterHandshake(900, epochs)
    assert (second.offset, second.epoch, second.confirm_offset, bytes(second.content)) == (4, Epoch(4, 700), 1, b"xy")
    assert (third.offset, third.epoch, third.confirm_offset, bytes(third.content)) == (-1, None, -1, b"")
    assert masters.pending_bytes == 1


def read_slave(data: bytes) -> object:
    return SlaveMessageReader().feed(data)


def read_master(data: bytes) -> object:
    return MasterMessageReader().feed(data)


@pytest.mark.parametrize(
    ("read", "head"),
    [
        pytest.param(read_slave, struct.pack(">iq", 0, 0), id="a plain slave's report"),
        pytest.param(read_slave, struct.pack(">iq", 3, 0), id="an unknown state of a slave"),
        pytest.param(read_slave, struct.pack(">iq", 2, -1), id="a report below 0"),
        pytest.param(read_slave, struct.pack(">ihhq", 1, 0, 0, 0), id="the master's id"),
        pytest.param(read_master, struct.pack(">iiqi", 4, 0, 0, 0), id="an unknown state of a master"),
        pytest.param(read_master, struct.pack(">iiqi", 1, 13, 0, 0), id="half an epoch"),
        pytest.param(read_master, struct.pack(">iiqi", 1, -12, 0, 0), id="epochs below 0"),
        pytest.param(read_master, struct.pack(">iiqi", 1, 12 * (MAX_EPOCHS + 1), 0, 0), id="too many epochs"),
        pytest.param(read_master, struct.pack(">iiqi", 1, 0, -1, 0), id="a log that ends below 0"),
        pytest.param(read_master, struct.pack(">iiqi", 2, MAX_PIECE_BYTES + 1, 0, 0), id="a piece that is too long"),
        pytest.param(read_master, struct.pack(">iiqi", 2, -1, 0, 0), id="a piece below 0"),
        pytest.param(read_master, struct.pack(">iiqi", 2, 1, -1, 0), id="bytes before the log"),
        pytest.param(read_master, struct.pack(">iiqi", 2, 0, -2, 0), id="a heartbeat before -1"),
        pytest.param(read_master, struct.pack(">iiqi", 2, 0, 0, -2), id="an epoch below -1"),
        pytest.param(read_master, struct.pack(">iiqiqq", 2, 0, 0, 1, -1, 0), id="an epoch that begins below 0"),
        pytest.param(read_master, struct.pack(">iiqi" + "iq" * 2, 1, 24, 0, 4, 4, 0, 3, 9), id="epochs out of order"),
    ],
)
def test_what_no_end_can_send_is_refused(read: Callable[[bytes], object], head: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(head)


def test_a_size_is_refused_before_anything_is_kept() -> None:
    reader = MasterMessageReader()
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">iiqi", 1, 12 * (MAX_EPOCHS + 1), 0, 0) + bytes(100))
    assert reader.pending_bytes == 0
