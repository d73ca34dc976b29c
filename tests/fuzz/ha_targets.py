"""Decoders of what comes over the port for slaves: RocketMQ's two protocols, greetings, frames, tables."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from broker.offset.consumer_offsets import decoded_changes
from ha.autoswitch.messages import (
    MasterHandshake,
    MasterMessageReader,
    MasterTransfer,
    SlaveHandshake,
    SlaveMessageReader,
    SlaveReport,
    transfer_head,
)
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.greeting import MasterGreeting, SlaveGreeting
from ha.protocol import ReportReader, TransferReader
from ha.session import FrameType, frame
from ha.table_queue import TableUpdate, decode_table
from sprocket.common.errors import ProtocolError
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.test_ha_session import CONTENT, feed_ends, feed_reader
from tests.ha.autoswitch.ends import EpochMemoryLog, Pair
from tests.ha.sessions import EPOCH, credentials


def plain_transfers(data: bytes) -> None:
    """What a master of RocketMQ sends is the same however it is split."""
    assert _transfers([data]) == _transfers(pieces_of(data))


def _transfers(pieces: list[bytes]) -> object:
    reader = TransferReader()
    found: list[object] = []
    try:
        for piece in pieces:
            found += [(one.from_offset, bytes(one.content)) for one in reader.feed(piece)]
    except ProtocolError as error:
        return error.kind
    return [*found, reader.pending_bytes]


def plain_reports(data: bytes) -> None:
    """What a slave of RocketMQ reports is the same however it is split."""
    whole = _reports([data])
    assert whole == _reports(pieces_of(data))


def _reports(pieces: list[bytes]) -> object:
    reader = ReportReader()
    found: list[int] = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
    except ProtocolError as error:
        return error.kind
    return found


def autoswitch_messages(data: bytes) -> None:
    """What either end of RocketMQ's protocol of controller mode sends is the same however it is split."""
    for make in (SlaveMessageReader, MasterMessageReader):
        assert _messages(make(), [data]) == _messages(make(), pieces_of(data))


def _messages(reader: SlaveMessageReader | MasterMessageReader, pieces: list[bytes]) -> object:
    found: list[object] = []
    try:
        for piece in pieces:
            found += [
                replace(one, content=memoryview(bytes(one.content))) if isinstance(one, MasterTransfer) else one
                for one in reader.feed(piece)
            ]
    except ProtocolError as error:
        return error.kind
    return [*found, reader.pending_bytes]


def autoswitch_ends(data: bytes) -> None:
    """Both ends read any bytes: the common epoch stays, and nothing is acknowledged that was not sent."""
    for pieces in ([data], pieces_of(data)):
        pair = Pair(EpochMemoryLog(CONTENT, (1, 0), (3, 50)), EpochMemoryLog(CONTENT[:80], (1, 0), (3, 50)))
        with suppress(ProtocolError):
            for piece in pieces:
                pair.master.received(piece, 0.0)
                while pair.master.next_piece(0.0):
                    pass
        assert pair.master.acked_offset <= len(CONTENT)
        with suppress(ProtocolError):
            for piece in pieces:
                pair.slave.received(piece, 0.0)
        log = pair.slave_log
        assert log.end_offset == log.min_offset + len(log.content)
        assert sum(map(len, log.cuts)) <= 80
        assert log.history.epochs[:1] == (Epoch(1, 0),)


def frames(data: bytes) -> None:
    """Frames of a session, of either end, whole and in pieces."""
    for from_slave in (False, True):
        whole = feed_reader(data, len(data) + 1, from_slave=from_slave)
        assert whole == feed_reader(data, 1 + len(data) % 13, from_slave=from_slave)


def sessions(data: bytes) -> None:
    """Both ends, streaming already, hear any bytes: nothing is cut or acknowledged that was not said."""
    feed_ends(data, 1 + len(data) % 29, to_master=len(data) % 2 == 0)


def greetings(data: bytes) -> None:
    """A greeting of any bytes, with and without a secret, in pieces and at once."""
    for secret in (b"", b"s"):
        _greet(lambda secret=secret: MasterGreeting(credentials(0, secret), EPOCH), data)  # type: ignore[misc]
        _greet(lambda secret=secret: _begun(SlaveGreeting(credentials(1, secret))), data)  # type: ignore[misc]


def _begun(greeting: SlaveGreeting) -> SlaveGreeting:
    greeting.begin()
    return greeting


def _greet(make: Callable[[], Any], data: bytes) -> None:
    outcomes = []
    for pieces in ([data], pieces_of(data)):
        greeting = make()
        try:
            for piece in pieces:
                greeting.received(piece)
            # A master looks at the bytes after a HELLO when it reads from the slave again.
            greeting.received(b"")
            outcomes.append("more")
        except ProtocolError as error:
            outcomes.append(error.kind)
    assert outcomes[0] == outcomes[1], outcomes


def tables(data: bytes) -> None:
    """A table that a master sends."""
    with suppress(ProtocolError):
        table = decode_table(memoryview(data))
        assert table.name
        decoded_changes(table.content)


HELLO = SlaveGreeting(credentials(1, b"s")).begin()
WELCOME = MasterGreeting(credentials(0, b"s"), EPOCH).received(HELLO)
FRAMES = [frame(kind, EPOCH, 0, body) for kind in FrameType for body in (b"", bytes(8), CONTENT[:10])]
EPOCHS = EpochHistory([Epoch(1, 0), Epoch(3, 50)])
AUTOSWITCH = [
    SlaveHandshake(2).encode() + SlaveReport(0).encode() + SlaveReport(10).encode(),
    SlaveHandshake(2, from_last_segment=True, is_learner=True).encode(),
    MasterHandshake(90, EPOCHS).encode() + transfer_head(1, 5, Epoch(3, 50), 80) + CONTENT[1:6],
    MasterHandshake(60, EPOCHS).encode() + transfer_head(1, 0, None, -1),
    transfer_head(0, (1 << 31) - 1, Epoch(1, 0), 0),
]
HA_TARGETS = [
    Target(
        "plain_transfers",
        plain_transfers,
        [bytes(8) + b"\x00\x00\x00\x05hello" * 2, bytes(7) + b"\x01" + b"\x7f\xff\xff\xff"],
    ),
    Target("plain_reports", plain_reports, [bytes(24), b"\xff" * 8]),
    Target("autoswitch_messages", autoswitch_messages, AUTOSWITCH),
    Target("autoswitch_ends", autoswitch_ends, AUTOSWITCH, 4000),
    Target("session_frames", frames, [b"".join(FRAMES[:4]), *FRAMES]),
    Target("sessions", sessions, [b"".join(FRAMES[:3]), *FRAMES], 4000),
    Target("greetings", greetings, [HELLO, WELCOME], 4000),
    Target("ha_tables", tables, [TableUpdate(0, "offsets", b'{"a@b":{"0":5}}').encode(), b"\x01\x00a{}"]),
]
