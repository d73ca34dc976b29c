"""How a log is cut into tasks."""

import pytest

from spark.tables.log_range import task_bytes

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 15, 47, 300, 513, 700, 1100, 4096])
def test_every_process_has_as_many_tasks_as_the_others(size: int, processes: int) -> None:
    each = task_bytes(size * MEBIBYTE, processes)
    tasks = -(-size * MEBIBYTE // each)
    assert 16 * MEBIBYTE <= each <= 256 * MEBIBYTE
    assert tasks % processes == 0 or each == 16 * MEBIBYTE
