"""Bodies are marked as the reference marks them, and never inflate beyond the limit."""

import gzip

import pytest

from sprocket import BodyUnreadable, Compression
from sprocket.client.compression import compress, decompress, gunzip
from tests.client.java_vectors import BODY

MARKS = {Compression.ZLIB: 0x301, Compression.LZ4: 0x101, Compression.ZSTD: 0x201}


@pytest.mark.parametrize("kind", list(Compression))
def test_round_trip_and_mark(kind: Compression) -> None:
    compressed, sys_flag = compress(BODY * 100, kind, 5)
    assert sys_flag == MARKS[kind]
    assert len(compressed) < len(BODY) * 100
    assert decompress(compressed, sys_flag) == BODY * 100


@pytest.mark.parametrize("kind", list(Compression))
def test_body_that_inflates_beyond_the_limit_is_refused(kind: Compression) -> None:
    compressed, sys_flag = compress(bytes(1_000_000), kind, 5)
    with pytest.raises(BodyUnreadable, match="beyond 999999 bytes"):
        decompress(compressed, sys_flag, 999_999)
    assert len(decompress(compressed, sys_flag, 1_000_000)) == 1_000_000


@pytest.mark.parametrize("kind", list(Compression))
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty"])
def test_damaged_body_is_refused(kind: Compression, damage: str) -> None:
    compressed, sys_flag = compress(BODY * 10, kind, 5)
    broken = {"cut": compressed[:-5], "garbage": b"garbage" * 5, "empty": b""}[damage]
    with pytest.raises(BodyUnreadable):
        decompress(broken, sys_flag)


def test_unknown_type_is_refused_and_plain_body_is_itself() -> None:
    with pytest.raises(BodyUnreadable, match="type 4"):
        decompress(b"x", 0x401)
    assert decompress(b"plain", 0) == b"plain"


def test_gzip_is_read_whole_or_refused() -> None:
    compressed = gzip.compress(BODY * 100)
    assert gunzip(compressed) == BODY * 100
    assert len(gunzip(gzip.compress(bytes(1_000_000)), 1_000_000)) == 1_000_000
    for broken, limit_bytes in (
        (compressed[:-5], 1 << 20),
        (b"garbage" * 5, 1 << 20),
        (b"", 1 << 20),
        (compressed, 99),
    ):
        with pytest.raises(BodyUnreadable):
            gunzip(broken, limit_bytes)
