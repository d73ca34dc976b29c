"""A table that is saved in a thread: changes are gathered, waited for, and undone if they cannot be written."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from sprocket.common.errors import DiskFull, StoreError
from sprocket.common.table_saver import TableSaver


class Table:
    """Numbers; a write waits until the test lets it go on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.written: list[bytes] = []
        self.threads: set[int] = set()
        self.announced: list[list[int]] = []
        self.error: StoreError | None = None
        self.may_write = threading.Event()
        self.may_write.set()
        self.saving = TableSaver[int](self._content, self._write, self.announced.append)

    def add(self, number: int) -> None:
        self.numbers.append(number)
        self.saving.changed(number, lambda: self.numbers.remove(number))

    def _content(self) -> Callable[[], bytes]:
        numbers = bytes(self.numbers)
        return lambda: numbers

    def _write(self, content: bytes) -> None:
        self.threads.add(threading.get_ident())
        assert self.may_write.wait(60)
        if self.error is not None:
            raise self.error
        self.written.append(content)


async def test_changes_that_come_during_a_write_share_the_next_one() -> None:
    table = Table()
    table.saving.start()
    table.may_write.clear()
    table.add(1)
    await asyncio.sleep(0.01)
    for number in range(2, 100):
        table.add(number)
    assert not table.written, "nobody waits for the disk"
    waiting = asyncio.ensure_future(table.saving.saved())
    await asyncio.sleep(0)
    assert not waiting.done()
    table.may_write.set()
    await waiting
    assert table.written == [bytes([1]), bytes(range(1, 100))]
    assert table.announced == [[1], list(range(2, 100))]
    assert table.threads != {threading.get_ident()}
    await table.saving.stop()


async def test_waiting_callers_get_the_error_and_later_changes_are_undone_too() -> None:
    table = Table()
    table.saving.start()
    table.add(1)
    await table.saving.saved()
    table.may_write.clear()
    table.error = DiskFull("no space")
    table.add(2)
    await asyncio.sleep(0.01)
    table.add(3)
    errors: list[StoreError | None] = []
    table.saving.when_saved(errors.append)
    table.may_write.set()
    with pytest.raises(DiskFull, match="no space"):
        await table.saving.saved()
    assert (table.numbers, errors) == ([1], [table.error])
    assert not table.saving.is_behind
    table.error = None
    table.add(4)
    await table.saving.saved()
    assert table.written[-1] == bytes([1, 4])
    await table.saving.stop()


async def test_only_answers_of_the_turn_that_made_a_change_rely_on_it() -> None:
    table = Table()
    table.saving.start()
    table.may_write.clear()
    table.add(1)
    table.saving.rely()
    assert table.saving.is_relied_on
    await asyncio.sleep(0.01)
    assert not table.saving.is_relied_on, "answers to others do not wait"
    table.may_write.set()
    await table.saving.stop()
    assert table.written == [bytes([1])]


def test_without_a_loop_a_change_is_written_before_it_returns() -> None:
    table = Table()
    table.add(1)
    assert table.written == [bytes([1])]
    table.error = StoreError("no disk")
    with pytest.raises(StoreError, match="no disk"):
        table.add(2)
    assert table.numbers == [1]
