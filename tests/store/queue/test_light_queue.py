"""Light queues keep little in memory while they are quiet, and everything on the disk."""

from pathlib import Path

from store.disk.disk import RealDisk
from store.queue.consume_queue import UNIT
from store.queue.light_queue import LightQueue, LightQueues

_FILE_BYTES = 4 * UNIT


def _light(root: Path, max_awake: int = 1) -> LightQueues:
    return LightQueues(RealDisk(), root, _FILE_BYTES, max_awake)


def _write(queue: LightQueue, count: int) -> None:
    for _ in range(count):
        queue.add(queue.next_offset * 100, 100, 7, 0, 1)
    queue.write_pending()
    queue.max_offset = queue.written_offset


def _flush(queue: LightQueue) -> None:
    files, end = queue.files_to_flush()
    for file in files:
        file.sync()
    queue.flushed(end)


def test_a_quiet_queue_drops_its_files_when_others_wake_and_is_read_and_written_as_before(tmp_path: Path) -> None:
    light = _light(tmp_path)
    queues = [LightQueue(light, f"%LMQ%q{number}") for number in range(6)]
    for queue in queues:
        _write(queue, 6)  # two files
        _flush(queue)
    assert [queue.sleep() for queue in queues[:5]] == [True] * 5
    for queue in queues:
        assert (queue.first_offset, queue.capacity_unit, queue.max_offset) == (0, 8, 6)
        assert queue.entry(5) == (500, 100, 7)
        _write(queue, 3)
        assert [queue.entry(offset) for offset in (6, 8)] == [(600, 100, 7), (800, 100, 7)]
        assert queue.capacity_unit == 12
        _flush(queue)


def test_a_queue_with_entries_that_are_not_on_the_disk_stays_awake(tmp_path: Path) -> None:
    light = _light(tmp_path)
    queue = LightQueue(light, "%LMQ%q")
    queue.add(0, 100, 7, 0, 1)
    assert (queue.has_pending, queue.sleep()) == (True, False)
    queue.write_pending()
    assert (queue.has_pending, queue.sleep()) == (False, False)
    _flush(queue)
    assert (queue.sleep(), queue.has_pending, queue.unflushed_bytes()) == (True, False, 0)


def test_questions_about_a_quiet_queue_do_not_wake_it(tmp_path: Path) -> None:
    light = _light(tmp_path)
    queue, other = LightQueue(light, "%LMQ%q"), LightQueue(light, "%LMQ%other")
    _write(queue, 2)
    _flush(queue)
    view = queue.entries(0, 2)
    _write(other, 1)
    light.rest()
    assert not queue.is_awake
    assert (queue.has_pending, queue.unflushed_bytes(), queue.files_to_flush()) == (False, 0, ([], 2))
    assert (queue.first_unit, queue.capacity_unit, queue.magic, queue.queue_id) == (0, 4, -626843481, 0)
    queue.close()
    assert not queue.is_awake
    assert view["physical_offset"].tolist() == [0, 100], "slices of a closed file stay valid"


def test_a_queue_of_a_list_is_taken_with_its_first_entries_and_nothing_is_opened(tmp_path: Path) -> None:
    light = _light(tmp_path)
    queue = LightQueue(light, "%LMQ%q")
    _write(queue, 3)
    _flush(queue)
    again = LightQueue(light, "%LMQ%q")
    assert not again.load_listed(0, 5), "the list says more than one file"
    assert again.load_listed(0, 3)
    assert again.border_units(0, 3) == ((0, 100, 7), (200, 100, 7), (0, 0, 0))
    assert not again.is_awake
    gone = LightQueue(light, "%LMQ%other")
    assert gone.load_listed(0, 3)
    assert gone.border_units(0, 3) == (None, None, None), "its file is missing"
