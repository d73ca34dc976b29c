"""Blocks in memory: which are kept."""

from store.tier.reads.block_cache import BlockCache, BlockKey

A, B, C = (BlockKey("segment", begin) for begin in (0, 100, 200))


def test_the_block_that_was_used_longest_ago_goes_first() -> None:
    cache = BlockCache(20)
    cache.put(A, b"a" * 10, 10)
    cache.put(B, b"b" * 10, 10)
    assert cache.find(A) == b"a" * 10
    cache.put(C, b"c" * 10, 10)
    assert (A in cache, B in cache, C in cache) == (True, False, True)
    assert cache.size_bytes == 20


def test_a_block_that_is_put_again_counts_once() -> None:
    cache = BlockCache(20)
    cache.put(A, b"a" * 10, 10)
    cache.put(A, b"b" * 5, 5)
    assert (cache.find(A), cache.size_bytes, len(cache)) == (b"b" * 5, 5, 1)


def test_a_block_larger_than_the_cache_is_not_kept_and_drives_no_other_out() -> None:
    cache = BlockCache(20)
    cache.put(A, b"a" * 10, 10)
    cache.put(B, b"b" * 21, 21)
    assert (A in cache, B in cache) == (True, False)


def test_a_smaller_limit_drops_blocks_at_once() -> None:
    cache = BlockCache(20)
    cache.put(A, b"a" * 10, 10)
    cache.put(B, b"b" * 10, 10)
    cache.resize(10)
    assert (A in cache, B in cache) == (False, True)


def test_hits_and_misses_are_counted() -> None:
    cache = BlockCache(20)
    cache.find(A)
    cache.put(A, b"a", 1)
    cache.find(A)
    assert (cache.hits, cache.misses) == (1, 1)
