"""The memory of a task does not grow with what it reads."""

from pathlib import Path

from benchmarks.spark.data import MEBIBYTE, write_store
from benchmarks.spark.memory import growth_of_a_read
from spark.decode.columns import DEFAULT_COLUMNS


def test_a_partition_is_read_in_windows(tmp_path: Path) -> None:
    """It takes under 60 MB whatever its size is; 1 GiB is measured by `benchmarks.spark.memory`."""
    count = write_store(tmp_path, 192 * MEBIBYTE, segments=1).message_count
    rows, grown = growth_of_a_read(tmp_path, DEFAULT_COLUMNS)
    assert rows == count
    assert grown < 100 * MEBIBYTE
