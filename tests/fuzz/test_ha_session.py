"""Any bytes on the HA port: both ends of a session answer or raise ProtocolError, and how bytes are split is the same.

`python -m tests.fuzz.test_ha_session COUNT` feeds so many.
"""

import random
import sys
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ha.greeting import MasterGreeting, SlaveGreeting
from ha.protocol import ReportReader, TransferReader
from ha.session import FrameReader, FrameType, frame
from sprocket.common.errors import ProtocolError
from tests.ha.sessions import EPOCH, Ends, SessionMemoryLog, credentials
from tests.tiers import examples

CONTENT = random.Random(1).randbytes(300)
NUMBERS = [0, 1, 10, 299, 300, 301, 1 << 31, (1 << 63) - 1]
FRAMES = st.builds(
    frame,
    st.sampled_from(list(FrameType)),
    st.sampled_from([EPOCH, EPOCH, EPOCH, EPOCH + 1]),
    st.sampled_from(NUMBERS),
    st.sampled_from([b"", bytes(8), bytes(4), b"\x00\x00\x00\x0a", b"\x00\x00\x00\x0a" * 2, CONTENT[:10], bytes(24)])
    | st.binary(max_size=40),
)
STREAM = st.lists(FRAMES | st.binary(max_size=40), max_size=8).map(b"".join)


def feed_reader(data: bytes, step: int, *, from_slave: bool) -> list[object]:
    reader = FrameReader(from_slave=from_slave)
    seen: list[object] = []
    try:
        for at in range(0, len(data), step):
            seen += [(one.type, one.offset, bytes(one.body)) for one in reader.feed(data[at : at + step])]
    except ProtocolError as error:
        # Frames before the bad one in the same read are not delivered; the connection ends.
        return [error.kind]
    return [*seen, reader.pending_bytes]


@settings(max_examples=examples(300), deadline=None)
@given(STREAM, st.integers(1, 50), st.booleans())
def test_frames(data: bytes, step: int, from_slave: bool) -> None:
    assert feed_reader(data, step, from_slave=from_slave) == feed_reader(data, len(data) + 1, from_slave=from_slave)


def feed_ends(data: bytes, step: int, *, to_master: bool) -> tuple[object, ...]:
    """An end that streams already, and then hears `data`: what the log holds, and what was acknowledged."""
    log, replica = SessionMemoryLog(CONTENT), SessionMemoryLog(CONTENT[:200])
    ends = Ends(log, replica)
    ends.talk()
    with suppress(ProtocolError):
        for at in range(0, len(data), step):
            part = data[at : at + step]
            if to_master:
                ends.master.received(part, 0.0)
            else:
                ends.slave.received(part, 0.0)
    assert log.content == CONTENT
    assert replica.content[:300] == CONTENT
    assert replica.cuts == []
    assert ends.master.acked_offset <= 300
    return bytes(replica.content), len(ends.applied)


@settings(max_examples=examples(200), deadline=None)
@given(STREAM, st.integers(1, 50), st.booleans())
def test_ends_that_stream(data: bytes, step: int, to_master: bool) -> None:
    feed_ends(data, step, to_master=to_master)


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.booleans())
def test_greetings_with_flipped_bytes(data: st.DataObject, is_master: bool) -> None:
    master, slave = MasterGreeting(credentials(0, b"s"), EPOCH), SlaveGreeting(credentials(1, b"s"))
    hello = slave.begin()
    message = bytearray(hello if is_master else master.received(hello))
    places = st.integers(0, len(message) - 1)
    for at, mask in data.draw(st.dictionaries(places, st.integers(1, 255), min_size=1, max_size=4)).items():
        message[at] ^= mask
    with suppress(ProtocolError):
        if is_master:
            assert master.received(bytes(message)) == b"" or master.slave is not None
        else:
            assert slave.received(bytes(message)) == b""


def main(count: int) -> None:
    """Feed `count` random streams to every reader, without hypothesis."""
    choose = random.Random(count)
    for number in range(count):
        parts = []
        for _ in range(choose.randrange(1, 6)):
            body = choose.choice([b"", bytes(8), bytes(4), CONTENT[:10], choose.randbytes(choose.randrange(40))])
            whole = bytearray(frame(choose.choice(list(FrameType)), EPOCH, choose.choice(NUMBERS), body))
            if choose.random() < 0.4:
                whole[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
            parts.append(bytes(whole) if choose.random() < 0.9 else choose.randbytes(choose.randrange(40)))
        data, step = b"".join(parts), choose.randrange(1, 60)
        for from_slave in (False, True):
            whole_read = feed_reader(data, len(data) + 1, from_slave=from_slave)
            assert feed_reader(data, step, from_slave=from_slave) == whole_read, number
        if number % 4 == 0:
            feed_ends(data, step, to_master=choose.random() < 0.5)
        for reader in (TransferReader(), ReportReader(), MasterGreeting(credentials(), EPOCH)):
            with suppress(ProtocolError):
                getattr(reader, "feed", None) and reader.feed(data)  # type: ignore[union-attr] # two of the three
                getattr(reader, "received", None) and reader.received(data)  # type: ignore[union-attr]


if __name__ == "__main__":
    main(int(sys.argv[1]))
