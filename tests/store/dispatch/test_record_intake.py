"""When a replica's records are taken by columns, and when one by one."""

from types import SimpleNamespace
from typing import Any

import pytest

from store.alike import arrived_records
from store.appender import Batch
from store.dispatch import record_intake
from store.dispatch.record_intake import RecordIntake
from tests.fuzz.engine_targets import TAGS_CODES
from tests.store.alike.test_arrived_records import BASE, FIRST, Log, filled


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
        part: Any = SimpleNamespace(segment_end=lambda _: 1 << 40, requires_seals=False)
        table: Any = SimpleNamespace(by_key=by_key, dispatches=False)
        self._intake = RecordIntake(part, table, TAGS_CODES, None)

    def take(self, offset: int) -> int:
        """Return the bytes that were taken."""
        dispatch: Any = SimpleNamespace(enter_units=lambda queue, units: None)
        return self._intake.take(dispatch, Batch(0), offset, memoryview(bytes(self._log.content))) - offset


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
    pause_bytes = record_intake._UNLIKE_BYTES
    # Records elsewhere would be damaged: only whether columns try counts here.
    intake.take(BASE + pause_bytes - 1)
    assert intake.tries == [False]
    intake.take(BASE + pause_bytes)
    assert intake.tries == [False, False]
