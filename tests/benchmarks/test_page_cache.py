import os

from benchmarks.system import page_cache

_PAGE_BYTES = 4096


def test_a_filled_page_cache_holds_the_pages_of_the_file() -> None:
    """A read that must not wait for the disk finds each page, also those of a last piece."""
    size_bytes = 9 * 1024 * 1024 + _PAGE_BYTES
    with page_cache.filled(size_bytes) as file:
        assert os.fstat(file).st_size == size_bytes
        assert os.fstat(file).st_blocks == 0, "it needs no disk"
        buffer = bytearray(_PAGE_BYTES)
        found = [os.preadv(file, [buffer], at, os.RWF_NOWAIT) for at in range(0, size_bytes, _PAGE_BYTES)]
    assert set(found) == {_PAGE_BYTES}


def test_free_memory_leaves_a_spare() -> None:
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 <= page_cache.free_bytes() <= total_bytes - page_cache.SPARE_BYTES
