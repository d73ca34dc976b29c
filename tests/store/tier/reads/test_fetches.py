"""Loads of blocks: shared, limited for each reader, bounded in time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sprocket.common.errors import StoreError
from store.tier.object_store import Unavailable
from store.tier.reads.block_cache import BlockCache, BlockKey
from store.tier.reads.fetches import Fetches, FetchLimits, Load
from store.tier.reads.turns import Room

_MANY = Room(100, 10_000)


class _Store:
    """Loads that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self._ends: dict[int, asyncio.Future[bytes]] = {}

    def load(self, begin: int) -> Load:
        async def load() -> bytes:
            self.begun.append(begin)
            self._ends[begin] = asyncio.get_running_loop().create_future()
            return await self._ends[begin]

        return load

    def end(self, begin: int) -> None:
        self._ends[begin].set_result(b"%d" % begin)


def _key(begin: int) -> BlockKey:
    return BlockKey("segment", begin)


def _run(test: Callable[[Fetches, _Store], Awaitable[None]], together: Room = _MANY, timeout_s: float = 30.0) -> None:
    async def run() -> None:
        await test(Fetches(BlockCache(1000), FetchLimits(Room(2, 100), together, timeout_s)), _Store())

    asyncio.run(run())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_all_who_want_one_block_share_a_load_and_later_ones_get_it_from_the_cache() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        waits = [asyncio.ensure_future(fetches.block(name, _key(7), 1, store.load(7))) for name in ("a", "b")]
        await _turns()
        assert store.begun == [7]
        store.end(7)
        assert await asyncio.gather(*waits) == [b"7", b"7"]
        assert await fetches.block("c", _key(7), 1, store.load(7)) == b"7"
        assert store.begun == [7]

    _run(test)


def test_a_reader_at_its_limit_of_loads_waits_and_another_does_not() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        waits = [asyncio.ensure_future(fetches.block("busy", _key(n), 1, store.load(n))) for n in range(4)]
        other = asyncio.ensure_future(fetches.block("other", _key(9), 1, store.load(9)))
        await _turns()
        assert store.begun == [0, 1, 9]
        store.end(1)
        await _turns()
        assert store.begun == [0, 1, 9, 2]
        for number in (0, 9, 2):
            store.end(number)
        await _turns()
        store.end(3)
        assert await asyncio.gather(*waits, other) == [b"0", b"1", b"2", b"3", b"9"]

    _run(test)


def test_a_reader_at_its_limit_of_bytes_waits_and_gets_nothing_ahead() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        first = asyncio.ensure_future(fetches.block("group", _key(0), 90, store.load(0)))
        await _turns()
        second = asyncio.ensure_future(fetches.block("group", _key(1), 20, store.load(1)))
        assert not fetches.ahead("group", _key(2), 20, store.load(2))
        await _turns()
        assert store.begun == [0]
        store.end(0)
        await _turns()
        assert store.begun == [0, 1]
        store.end(1)
        assert await asyncio.gather(first, second) == [b"0", b"1"]

    _run(test)


def test_a_block_above_the_limit_of_bytes_is_loaded_alone() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        wait = asyncio.ensure_future(fetches.block("group", _key(0), 5000, store.load(0)))
        await _turns()
        store.end(0)
        assert await wait == b"0"

    _run(test)


def test_a_load_ahead_fills_the_cache() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        assert fetches.ahead("group", _key(3), 1, store.load(3))
        await _turns()
        store.end(3)
        await _turns()
        assert await fetches.block("group", _key(3), 1, store.load(3)) == b"3"
        assert store.begun == [3]

    _run(test)


def test_who_gives_up_does_not_end_the_load_of_the_others() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        first = asyncio.ensure_future(fetches.block("a", _key(0), 1, store.load(0)))
        second = asyncio.ensure_future(fetches.block("b", _key(0), 1, store.load(0)))
        await _turns()
        first.cancel()
        await _turns()
        store.end(0)
        assert await second == b"0"

    _run(test)


def test_a_load_that_takes_too_long_ends_with_an_error_and_the_next_one_begins_anew() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        with pytest.raises(Unavailable, match="no answer from the object store"):
            await fetches.block("group", _key(0), 1, store.load(0))
        again = asyncio.ensure_future(fetches.block("group", _key(0), 1, store.load(0)))
        await _turns()
        store.end(0)
        assert await again == b"0"

    _run(test, timeout_s=0.01)


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        async def fail() -> bytes:
            raise StoreError("damaged")

        waits = [fetches.block(name, _key(0), 1, fail) for name in ("a", "b")]
        errors = await asyncio.gather(*waits, return_exceptions=True)
        assert [str(error) for error in errors] == ["damaged", "damaged"]
        again = asyncio.ensure_future(fetches.block("a", _key(0), 1, store.load(0)))
        await _turns()
        store.end(0)
        assert await again == b"0"

    _run(test)


def test_all_readers_together_have_a_limit_and_get_their_turns_one_after_another() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        names = [(name, n) for name, first in (("a", 0), ("b", 10), ("c", 20)) for n in range(first, first + 3)]
        waits = [asyncio.ensure_future(fetches.block(name, _key(n), 1, store.load(n))) for name, n in names]
        await _turns()
        assert store.begun == [0, 1, 10]
        assert not fetches.ahead("d", _key(30), 1, store.load(30))
        for ended in (0, 1, 10, 2, 11, 20):
            store.end(ended)
            await _turns()
        assert store.begun == [0, 1, 10, 2, 11, 20, 12, 21, 22]
        for ended in (12, 21, 22):
            store.end(ended)
        assert await asyncio.gather(*waits) == [b"%d" % n for _, n in names]

    _run(test, Room(3, 1000))


def test_a_large_block_is_not_overtaken_by_small_ones() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        sizes = [("a", 0, 60), ("b", 1, 30), ("c", 2, 90), ("d", 3, 10)]
        waits = [asyncio.ensure_future(fetches.block(name, _key(n), size, store.load(n))) for name, n, size in sizes]
        await _turns()
        assert store.begun == [0, 1]
        store.end(0)
        await _turns()
        assert store.begun == [0, 1]
        store.end(1)
        await _turns()
        assert store.begun == [0, 1, 2, 3]
        for number in (2, 3):
            store.end(number)
        await asyncio.gather(*waits)

    _run(test, Room(10, 100))


def test_who_waits_too_long_for_a_turn_is_told_and_takes_none() -> None:
    async def test(fetches: Fetches, store: _Store) -> None:
        first = asyncio.ensure_future(fetches.block("a", _key(0), 1, store.load(0)))
        await _turns()
        with pytest.raises(Unavailable, match="other reads have kept the object store busy"):
            await fetches.block("b", _key(1), 1, store.load(1))
        with pytest.raises(Unavailable):
            await first
        again = asyncio.ensure_future(fetches.block("b", _key(1), 1, store.load(1)))
        await _turns()
        store.end(1)
        assert await again == b"1"

    _run(test, Room(1, 1000), timeout_s=0.05)
