"""The walk of a segment finds the same records as following the chain one by one."""

import struct
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark.files.segment import Segment
from tests.spark.store_builder import Row, StoreBuilder
from tests.tiers import examples


def chain(content: bytes, begin: int, end: int) -> list[int]:
    """Record by record, with the sizes as they stand."""
    positions = []
    while begin < end:
        size, magic = struct.unpack_from(">ii", content, begin)
        if magic not in (-626843481, -626843477):
            break
        positions.append(begin)
        begin += size
    return positions


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.sampled_from([0, 10, 500, 5_000, 70_000, 300_000]), max_size=60), cut=st.integers(0, 1 << 21))
def test_walk_equals_the_chain(tmp_path: Path, sizes: list[int], cut: int) -> None:
    builder = StoreBuilder(tmp_path, segment_bytes=1 << 21)
    for size in sizes:
        builder.append(Row(body=b"\xda\xa3\x20\xa7" * (size // 4), version=1 + size % 2))
    builder.write()
    for file in sorted((tmp_path / "commitlog").iterdir()):
        content = file.read_bytes()
        with Segment(file, int(file.name)) as segment:
            expected = chain(content, 0, len(content) - 7)
            assert segment.walk(0, segment.size).positions.tolist() == expected
            assert segment.walk(0, cut).positions.tolist() == [at for at in expected if at < cut]
            following = segment.resync(cut, segment.size)
            assert following == next((at for at in expected if at >= cut), None)
            if following is not None:
                assert segment.walk(following, segment.size).positions.tolist() == [at for at in expected if at >= cut]
        file.unlink()


def test_a_segment_of_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.touch()
    with Segment(path, 0) as segment:
        assert segment.resync(0, 0) is None
        assert segment.walk(0, 0).positions.size == 0


def test_store_timestamp_behind_either_kind_of_host(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for host in (bytes(4), bytes(16)):
        for store_host in (bytes(4), bytes(16)):
            builder.append(Row(born_host=host, store_host=store_host, store_timestamp=1234567890123))
    builder.write()
    with Segment(tmp_path / "commitlog" / f"{0:020d}", 0) as segment:
        assert [segment.store_timestamp(row.physical_offset) for row in builder.rows] == [1234567890123] * 4
        assert all(segment.is_whole(row.physical_offset) for row in builder.rows)
