"""When a replica's records are taken by columns, and when one by one."""

from types import SimpleNamespace
from typing import Any

import pytest

from store.alike import arrived_records
from store.appender import Batch
from store.dispatch import record_intake
from store.dispatch.record_intake import RecordIntake
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from tests.fuzz.twins.scan_targets import TAGS_CODES
from tests.store.alike.test_arrived_records import BASE, FIRST, Log, filled


class _Dispatch:
    """Entries that count, and are not kept."""

    def enter_units(self, queue: Any, units: bytes) -> None:
        queue.next_offset += len(units) // CONSUME_QUEUE_UNIT_BYTES


class Intake:
    """Intake with pure Python of one log again and again, at different offsets of the replica's log."""

    def __init__(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = log
        self.tries: list[bool] = []

        def noted(*arguments: Any, **options: Any) -> Any:
            taken = take_alike(*arguments, **options)
            self.tries.append(taken[0] > 0)
            return taken

        take_alike = arrived_records.take_alike
        monkeypatch.setattr(record_intake, "take_alike", noted)
        by_key = {
            (topic.decode(), queue_id): SimpleNamespace(next_offset=FIRST, is_batch=False, is_schedule=False)
            for topic, queue_id in log.queues
        }
        part: Any = SimpleNamespace(segment_end=lambda offset: offset + (1 << 20), requires_seals=False)
        table: Any = SimpleNamespace(by_key=by_key, dispatches=False)
        self.table, self.intake = table, RecordIntake(part, table, TAGS_CODES, None)

    def take(self, offset: int) -> int:
        """Return the bytes that were taken."""
        dispatch: Any = _Dispatch()
        for queue in self.table.by_key.values():
            queue.next_offset = FIRST
        return self.intake.take(dispatch, Batch(0), offset, memoryview(bytes(self._log.content))) - offset


def test_alike_records_are_taken_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(Log())
    intake = Intake(log, monkeypatch)
    assert intake.take(BASE) == len(log.content)
    assert intake.tries == [True]


def test_few_records_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for number in range(9):
        log.add(number)
    intake = Intake(log, monkeypatch)
    assert intake.take(BASE) == len(log.content)
    assert not intake.tries


def test_after_unlike_records_columns_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(Log(), 40, properties="UNIQ_KEY\x01\x02")
    intake = Intake(log, monkeypatch)
    assert intake.take(BASE) == len(log.content)
    assert intake.tries == [False]
    first, longest = record_intake.PAUSE_BYTES, record_intake.MAX_PAUSE_BYTES
    # Elsewhere the records are wrong, and columns fail again.
    intake.take(BASE + first - 1)
    assert intake.tries == [False]
    intake.take(BASE + first)
    assert intake.tries == [False] * 2
    intake.take(BASE + 3 * first - 1)
    assert intake.tries == [False] * 2
    for number in range(20):
        intake.take(BASE + 3 * first + number * longest)
    assert intake.tries == [False] * 22
    intake.take(BASE + 3 * first + 20 * longest - 1)
    assert intake.tries == [False] * 22


def test_after_alike_records_the_next_pause_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = Intake(filled(Log()), monkeypatch)
    first = record_intake.PAUSE_BYTES
    intake.take(BASE - first)
    intake.take(BASE)
    intake.take(BASE + 1)
    intake.take(BASE + 1 + first)
    assert intake.tries == [False, True, False, False]


def test_records_are_expected_to_be_alike_until_some_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = Intake(filled(Log()), monkeypatch)
    assert intake.intake.expects_alike(BASE)
    intake.take(BASE + 1)
    assert not intake.intake.expects_alike(BASE + record_intake.PAUSE_BYTES)
    assert intake.intake.expects_alike(BASE + 1 + record_intake.PAUSE_BYTES)
