"""The end of a log that a broker writes while it is read."""

from pathlib import Path

import pytest

from spark.files.segment import Segment
from spark.files.store_directory import last_whole_record_end
from sprocket.common.errors import CorruptRecord
from tests.spark.store_builder import Row, StoreBuilder


def written(tmp_path: Path) -> tuple[Path, bytes, int]:
    """Return a segment, its bytes, and where its second record begins."""
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend([Row(body=b"first" * 20), Row(body=b"second")])
    builder.write()
    path = builder.root / "commitlog" / f"{0:020}"
    return path, path.read_bytes(), int.from_bytes(path.read_bytes()[:4])


class WrittenMeanwhile(Segment):
    """The broker writes `data_then` between the look at the first byte and the search for records."""

    data_then = b""

    def resync(self, position: int, end: int) -> int | None:
        with self.path.open("r+b") as file:
            file.write(self.data_then)
        return super().resync(position, end)


def test_the_first_record_is_written_while_the_segment_is_read(tmp_path: Path) -> None:
    path, data, second = written(tmp_path)
    path.write_bytes(bytes(len(data)))
    with WrittenMeanwhile(path, 0) as segment:
        segment.data_then = data[:second]
        assert last_whole_record_end(segment) == second


def test_a_damaged_first_record_is_reported(tmp_path: Path) -> None:
    path, data, second = written(tmp_path)
    path.write_bytes(bytes(second) + data[second:])
    with Segment(path, 0) as segment:
        with pytest.raises(CorruptRecord, match=f"physical offset 0: no record begins here, but one does at {second} "):
            last_whole_record_end(segment)
        assert last_whole_record_end(segment, drop_malformed=True) > second
