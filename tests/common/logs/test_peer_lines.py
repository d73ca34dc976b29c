"""A peer cannot fill the log: the first lines of a reason are written, the others are counted and told."""

import logging

import pytest

from sprocket.common.logs import peer_lines as limits
from sprocket.common.logs.peer_lines import PeerLines
from tests.clock import ManualClock

logger = logging.getLogger(__name__)
REFUSED = "event=send_refused topic=%s"
ONE, OTHER = ("10.0.0.7", 4711), ("10.0.0.8", 4711)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lines(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> PeerLines:
    caplog.set_level(logging.INFO)
    return PeerLines(clock)


def left_out(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("event=lines_left_out")]


def test_a_peer_gets_its_first_lines_and_one_that_counts_the_others(
    lines: PeerLines, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        lines.warning(logger, ("10.0.0.7", number), REFUSED, number)
    assert caplog.messages == [f"event=send_refused topic={number}" for number in range(limits.MAX_LINES_OF_PEER)]

    lines.flush()
    assert left_out(caplog) == [], "the minute has not ended"
    clock.advance(limits.WINDOW_S)
    lines.flush()
    lines.flush()
    assert left_out(caplog) == ["event=lines_left_out of=send_refused lines=990 seconds=60 most_from=10.0.0.7"]
    assert caplog.records[-1].levelno == logging.WARNING
    assert caplog.records[-1].name == __name__

    lines.warning(logger, ONE, REFUSED, "again")
    assert caplog.messages[-1] == "event=send_refused topic=again", "a new minute has begun"


def test_other_peers_and_other_reasons_are_not_left_out(lines: PeerLines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        lines.info(logger, ONE, REFUSED, "a")
    caplog.clear()
    lines.info(logger, OTHER, REFUSED, "b")
    lines.info(logger, ONE, "event=pull_offset_moved topic=%s", "c")
    assert caplog.messages == ["event=send_refused topic=b", "event=pull_offset_moved topic=c"]


def test_all_peers_together_have_a_limit_and_the_next_line_tells_of_the_rest(
    lines: PeerLines, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        lines.info(logger, f"10.0.{number // 256}.{number % 256}:99", REFUSED, "a")
    assert len(caplog.messages) == limits.MAX_LINES
    clock.advance(limits.WINDOW_S)
    lines.info(logger, ONE, REFUSED, "b")
    assert [text.partition(" seconds")[0] for text in caplog.messages[limits.MAX_LINES :]] == [
        "event=lines_left_out of=send_refused lines=900",
        "event=send_refused topic=b",
    ]


def test_the_end_of_a_process_tells_what_was_left_out(lines: PeerLines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(limits.MAX_LINES_OF_PEER + 1):
        lines.info(logger, ONE, REFUSED, "a")
    lines.finish()
    assert left_out(caplog) == ["event=lines_left_out of=send_refused lines=1 seconds=60 most_from=10.0.0.7"]


def test_lines_of_a_peer_that_nobody_knows_have_the_limit_of_all(
    lines: PeerLines, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(limits.MAX_LINES + 1):
        lines.info(logger, "", REFUSED, "a")
    lines.finish()
    assert len(caplog.messages) == limits.MAX_LINES + 1
    assert left_out(caplog) == ["event=lines_left_out of=send_refused lines=1 seconds=60 most_from=-"]


def test_a_line_below_the_level_counts_for_nothing(lines: PeerLines, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(100):
        lines.info(logger, ONE, REFUSED, "a")
    lines.finish()
    assert caplog.messages == []


def test_a_line_carries_its_traceback(lines: PeerLines, caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    lines.error(logger, ONE, "event=handler_failed", exc_info=error)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
