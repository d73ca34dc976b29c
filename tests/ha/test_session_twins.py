"""Frames of the compiled engine are those of Python, and sessions are the same with either engine."""

import random
from collections.abc import Callable
from unittest.mock import patch

import pytest

import ha.session
from ha.session import FrameType, frame
from sprocket.common.errors import ProtocolError
from tests.fuzz.twins.session_targets import EPOCH, START, compare_reads, session_frame_twins
from tests.ha.sessions import Ends, SessionMemoryLog
from tests.tiers import seeds

try:
    from ha import session_frames_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")
CONTENT = random.Random(5).randbytes(2_500)


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_any_bytes_and_damaged_frames(seed: int) -> None:
    chance = random.Random(seed)
    session_frame_twins(chance.randbytes(chance.choice((1, 4, 8, 70, 300))))


@pytest.mark.parametrize("size_bytes", [1, 63, 64, 65, 127, 128, 1_000, 20_000])
def test_pieces_of_any_size(size_bytes: int) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    data = frame(FrameType.LOG, EPOCH, START, body)
    assert b"".join(compiled.log_pieces(data, EPOCH, START) or ()) == body
    compare_reads(data)
    compare_reads(data + frame(FrameType.LOG, EPOCH, START + size_bytes, b"next"))


def test_reads_above_the_limit_are_left_to_python() -> None:
    limit = compiled.MAX_PIECE_BYTES
    for size_bytes, is_usual in ((limit - compiled.HEAD_BYTES, True), (limit - compiled.HEAD_BYTES + 1, False)):
        data = frame(FrameType.LOG, EPOCH, START, bytes(size_bytes))
        assert (compiled.log_pieces(data, EPOCH, START) is not None) is is_usual
        compare_reads(data)
    with pytest.raises(ValueError, match="32769 bytes"):
        compiled.log_head(EPOCH, START, bytes(limit + 1))


@pytest.mark.parametrize("seed", seeds(60, quick=2))
def test_a_session_is_the_same_with_either_engine(seed: int) -> None:
    def exchange(split: Callable[[bytes], list[bytes]]) -> list[object]:
        """Let a slave catch up and follow; then damage one read.  Return all that both ends say and store."""
        chance = random.Random(seed)
        log, replica = SessionMemoryLog(CONTENT[:1_000]), SessionMemoryLog(CONTENT[: chance.randrange(101) * 10])
        ends, said = Ends(log, replica, batch_bytes=chance.randrange(1, 300)), list[object]()
        ends.talk(split)
        for _ in range(20):
            log.content += CONTENT[len(log.content) :][: chance.randrange(1, 9) * 10]
            to_slave = ends.to_slave()
            reports = b"".join(ends.slave.received(part, 0.0) for part in split(to_slave))
            said += [to_slave, reports, ends.master.received(reports, 0.0), ends.master.acked_offset]
        log.content += CONTENT[len(log.content) :]
        damaged = bytearray(ends.to_slave())
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            said.append(ends.slave.received(bytes(damaged), 0.0))  # the size grew: the frame is incomplete
        except ProtocolError as error:
            said.append(error.kind)
        assert CONTENT.startswith(replica.content)
        return [*said, bytes(replica.content)]

    def whole(data: bytes) -> list[bytes]:
        return [data]

    with patch.object(ha.session, "_ENGINE", None):
        expected = exchange(whole)
    assert exchange(whole) == expected
