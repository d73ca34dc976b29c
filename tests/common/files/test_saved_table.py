"""A table that is saved in a thread: changes are gathered, waited for, and undone if they cannot be written."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFull, StoreError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable


class Numbers(SavedTable):
    """Numbers; a write waits until the test lets it go on."""

    def __init__(self, path: Path = Path("unused")) -> None:
        super().__init__(ConfigFile(path))
        self.numbers: list[int] = []
        self.written: list[bytes] = []
        self.threads: set[int] = set()
        self.announced: list[list[Sequence[str]]] = []
        self.error: StoreError | None = None
        self.may_write = threading.Event()
        self.may_write.set()

    def add(self, number: int) -> None:
        self.numbers.append(number)
        self._change([str(number)], lambda: self.numbers.remove(number))

    def note(self, number: int) -> None:
        """Add a number for which nobody waits."""
        self.numbers.append(number)
        self.changes += 1

    def decode(self, content: bytes) -> None:
        self.numbers = list(content)

    def _content(self) -> Callable[[], bytes]:
        numbers = bytes(self.numbers)
        return lambda: numbers

    def _write(self, content: bytes) -> None:
        self.threads.add(threading.get_ident())
        assert self.may_write.wait(60)
        if self.error is not None:
            raise self.error
        self.written.append(content)

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        self.announced.append(changes)


async def test_changes_that_come_during_a_write_share_the_next_one() -> None:
    table = Numbers()
    table.start()
    table.may_write.clear()
    table.add(1)
    for number in range(2, 100):
        table.add(number)
    assert not table.written, "nobody waits for the disk"
    waiting = asyncio.ensure_future(table.save())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    table.may_write.set()
    await waiting
    assert table.written == [bytes([1]), bytes(range(1, 100))]
    assert table.announced == [[["1"]], [[str(number)] for number in range(2, 100)]]
    assert table.threads != {threading.get_ident()}
    assert not table.is_unsaved
    await table.stop()


async def test_who_waits_gets_the_error_and_what_came_since_is_undone_as_well() -> None:
    table = Numbers()
    table.start()
    table.add(1)
    await table.save()
    table.may_write.clear()
    table.error = DiskFull("no space")
    table.add(2)
    table.add(3)
    errors: list[StoreError | None] = []
    table.when_saved(errors.append)
    table.may_write.set()
    with pytest.raises(DiskFull, match="no space"):
        await table.save()
    assert (table.numbers, errors) == ([1], [table.error])
    table.error = None
    table.add(4)
    await table.save()
    assert table.written[-1] == bytes([1, 4])
    assert table.announced == [[["1"]], [["4"]]]
    await table.stop()


async def test_changes_that_nobody_waits_for_are_written_by_the_next_save_and_kept_if_that_fails() -> None:
    table = Numbers()
    table.note(1)
    await asyncio.sleep(0.01)
    assert table.is_unsaved
    assert not table.written
    table.error = DiskFull("no space")
    with pytest.raises(DiskFull, match="no space"):
        await table.save()
    assert (table.numbers, table.is_unsaved) == ([1], True)
    table.error = None
    await table.save()
    assert table.written == [bytes([1])]
    await table.save()
    table.persist_changes()
    assert table.written == [bytes([1])], "nothing changed"
    table.persist()
    assert len(table.written) == 2


async def test_a_save_that_waits_writes_what_was_there_when_it_began() -> None:
    table, may_begin = Numbers(), asyncio.Event()

    async def ready() -> bool:
        await may_begin.wait()
        return True

    table.note(1)
    saving = asyncio.ensure_future(table.save(ready))
    await asyncio.sleep(0)
    table.note(2)
    assert not table.written
    may_begin.set()
    await saving
    assert table.written == [bytes([1])]
    assert table.is_unsaved


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_save_that_waits_writes_nothing_older_than_the_file(is_ready: bool) -> None:
    table = Numbers()

    async def ready() -> bool:
        table.note(2)
        if is_ready:
            table.persist()
        return is_ready

    table.note(1)
    await table.save(ready)
    assert table.written == ([bytes([1, 2])] if is_ready else [])


async def test_persist_waits_for_the_write_under_way_so_that_the_newer_content_stays() -> None:
    table = Numbers()
    table.start()
    table.may_write.clear()
    table.add(1)
    table.add(2)
    threading.Timer(0.05, table.may_write.set).start()
    table.persist()
    assert table.written == [bytes([1]), bytes([1, 2])]
    await table.stop()
    assert table.announced == [[["1"], ["2"]]]
    assert len(table.written) == 2


async def test_an_error_of_a_listener_is_no_failed_write() -> None:
    table = Numbers()
    table.start()
    table.announced = None  # type: ignore[assignment]
    table.add(1)
    await table.save()
    assert table.numbers == [1]
    await table.stop()


async def test_everything_is_written_when_stop_returns() -> None:
    table = Numbers()
    table.start()
    for number in range(3):
        table.add(number)
    await table.stop()
    assert table.written[-1] == bytes(range(3))
    table.add(3)
    assert table.written[-1] == bytes(range(4)), "after that a change is written at once"


def test_without_a_loop_a_change_is_written_before_it_returns() -> None:
    table = Numbers()
    table.add(1)
    assert table.written == [bytes([1])]
    table.error = StoreError("no disk")
    with pytest.raises(StoreError, match="no disk"):
        table.add(2)
    assert table.numbers == [1]


def test_loads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    assert not Numbers(path).load()
    path.write_bytes(bytes([5, 6]))
    table = Numbers(path)
    assert table.load()
    assert (table.numbers, table.is_unsaved) == ([5, 6], False)


async def test_a_thread_that_cannot_start_leaves_the_table_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    table = Numbers()
    table.start()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "run_in_executor", none_left)
        with pytest.raises(RuntimeError, match="thread"):
            table.add(1)
    await table.save()
    assert table.written == [bytes([1])]
    await table.stop()
