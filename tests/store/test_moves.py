"""Records that the compiled engine moves are those that Python makes: the same log, queues, timer log and wheel."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store import moves
from store.record.record import PendingMessage
from tests.store.timer.test_timer_files import BEGIN, Rig
from tests.store.timer.wheel_run import HOST, REAL_TOPIC, WheelRun
from tests.tiers import seeds

try:
    from store import moves_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")
PLACE = "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"


def with_queue(text: str) -> str:
    return PLACE.replace("REAL_QID\x010", f"REAL_QID\x01{text}")


# What may stand before, or in place of, the properties by which a message is delivered.
ODD = (
    PLACE, "TAGS\x01TagA\x02" + PLACE, "TAGS\x01A\x02TAGS\x01B\x02" + PLACE, "TAGS\x01\x02" + PLACE,
    "TAGS\x01Zürich\x02" + PLACE, "a\x01b\x01c\x02" + PLACE, "novalue\x02" + PLACE, "\x01v\x02" + PLACE,
    "\x02" + PLACE, "K\x01日本\x02" + PLACE, "a#\x01b\x02" + PLACE, "xTAGS\x01no\x02" + PLACE,
    "TIMER_ENQUEUE_MS\x017\x02" + PLACE, PLACE + "TIMER_DEQUEUE_MS\x017\x02", PLACE + "TIMER_ROLL_TIMES\x012\x02",
    PLACE + "REAL_TOPIC\x01Trades\x02", PLACE + "REAL_QID\x011\x02", "REAL_TOPIC\x01Trades\x02" + PLACE,
    PLACE + "TIMER_OUT_MS\x01{later}\x02", "INNER_NUM\x011\x02" + PLACE, PLACE + "K\x01" + "v" * 3000 + "\x02",
    *map(with_queue, ("7", "00", "-1", "2147483648", "x", "")),
    *(PLACE.replace("Orders", topic) for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "T" * 200, "")),
    "TIMER_OUT_MS\x01{out}\x02", "REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02", PLACE + "open\x01end",
)  # fmt: skip


@contextmanager
def moving(is_native: bool) -> Iterator[None]:
    """Let timers move records by the compiled engine, or make them one by one."""
    with patch.object(moves, "engine", compiled if is_native else None):
        yield


@pytest.mark.parametrize("seed", [17, 25, 254, *seeds(10)])
def test_a_timer_over_crashes_writes_the_same_files(seed: int) -> None:
    def files() -> tuple[Any, ...]:
        run = WheelRun(seed).play(40).finish()
        found = run.disk.files(), run.counts, run.problems
        run.close()
        return found

    with moving(False):
        expected = files()
    with moving(True):
        assert files() == expected


def contents(root: Path) -> dict[str, bytes]:
    """Every file but those that say which process has the store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*")) if path.is_file() and path.name not in ("lock", "abort")
    }  # fmt: skip


def delivered(root: Path, flags: int = 0) -> tuple[dict[str, bytes], dict[str, int], int]:
    """Let timed messages with all kinds of properties be delivered; return files, counts and how many were moved."""
    rig, moved = Rig(root, message_index_enable=False), 0
    append = rig.store.append_encoded

    def counting(records: Any) -> int:
        nonlocal moved
        moved += len(records)
        return append(records)

    for topic in (REAL_TOPIC, "Trades"):  # the compiled engine leaves new queues to Python
        rig.store.append([PendingMessage(topic, 0, b"first", b"", 0, 0, 0, 77, HOST)])
    for number in range(3 * len(ODD)):
        # Each alone, then in batches with others, then batches of usual ones.
        part = number // len(ODD)
        text = ODD[number % len(ODD)] if part < 2 else PLACE
        out = BEGIN + 5000 + 1000 * (80 + 10 * part + number % 3 if part else number)
        encoded = text.format(out=out, later=out + 60_000).encode()
        properties = b"UNIQ_KEY\x01K%d\x02" % number + encoded
        rig.store.append(
            [
                PendingMessage(
                    "rmq_sys_wheel_timer", 0, b"%d" % number, properties, 0, number, flags, 77 + number, HOST, 2
                )
            ]
        )
    with patch.object(rig.store, "append_encoded", counting):
        for _ in range(120):
            rig.work()
            rig.stores.clock.advance(1.0)
        rig.work()
    rig.stop()
    return contents(root), rig.counts, moved


@pytest.mark.parametrize("flags", [0, 1, 0x302])
def test_any_properties_are_delivered_the_same(tmp_path: Path, flags: int) -> None:
    with moving(False):
        expected = delivered(tmp_path / "python", flags)
    with moving(True):
        found = delivered(tmp_path / "native", flags)
    assert found[:2] == expected[:2]
    assert expected[2] == 0
    assert found[2] >= len(ODD)


def test_the_end_of_a_segment_and_full_records_are_left_to_python(tmp_path: Path) -> None:
    def run(root: Path) -> tuple[dict[str, bytes], int]:
        rig, moved = (
            Rig(root, mapped_file_size_commit_log=32 * 1024, max_message_size=2000, message_index_enable=False),
            0,
        )
        append = rig.store.append_encoded

        def counting(records: Any) -> int:
            nonlocal moved
            moved += len(records)
            return append(records)

        rig.store.append([PendingMessage(REAL_TOPIC, 0, b"first", b"", 0, 0, 0, 77, HOST)])
        encoded = PLACE.format(out=BEGIN + 5000).encode()
        for number in range(60):
            body = b"%d" % number * (100 + 7 * number % 600)
            rig.store.append([PendingMessage(TIMER_TOPIC, 0, body[:1999], encoded, 0, 0, 0, 77, HOST)])
        with patch.object(rig.store, "append_encoded", counting):
            for _ in range(10):
                rig.work()
                rig.stores.clock.advance(1.0)
        rig.stop()
        return contents(root), moved

    with moving(False):
        expected = run(tmp_path / "python")
    with moving(True):
        assert run(tmp_path / "native")[0] == expected[0]
