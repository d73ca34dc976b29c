"""One contract for all stores of claims, against real servers."""

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sprocket import (
    Claim,
    ClaimStore,
    IllegalArgument,
    IllegalMessage,
    KeyWindow,
    PostgresClaims,
    RedisClaims,
    SqliteClaims,
)

_numbers = count()
Open = Callable[..., ClaimStore]


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Function that returns a store over the test's own claims; each call makes another, as another process would."""
    group = f"group{next(_numbers)}"
    memory: list[KeyWindow] = []
    stack = AsyncExitStack()

    def memory_store(**settings: Any) -> ClaimStore:
        settings.pop("group", None)
        if not memory:
            memory.append(KeyWindow(**settings))
        return memory[0]

    def store(kind: Callable[..., Any], place: object, **settings: Any) -> ClaimStore:
        made = kind(place, **{"group": group, **settings})
        stack.push_async_exit(made)
        claims: ClaimStore = made
        return claims

    async with stack:
        if request.param == "memory":
            yield memory_store
        elif request.param == "sqlite":
            yield lambda **settings: store(SqliteClaims, tmp_path / "claims.db", **settings)
        elif request.param == "redis":
            url = request.getfixturevalue("redis_url")
            yield lambda **settings: store(RedisClaims, url, **settings)
        else:
            url = request.getfixturevalue("postgres_url")
            yield lambda **settings: store(PostgresClaims, url, **settings)


async def until_mine(claims: ClaimStore, key: str, owner: str) -> None:
    """Wait until a lease or a window has ended; the test's own timeout ends what never comes."""
    while await claims.claim(key, owner) is not Claim.MINE:
        await asyncio.sleep(0.01)


async def test_one_owner_claims_and_what_is_handled_stays_handled(open_store: Open) -> None:
    claims, other = open_store(), open_store()
    assert await claims.claim("k", "a") is Claim.MINE
    assert await other.claim("k", "b") is Claim.HELD
    assert await other.claim("l", "b") is Claim.MINE
    assert await claims.claim("k", "a") is Claim.MINE
    assert await other.commit("k", "b") is False
    assert await claims.commit("k", "a") is True
    assert await claims.commit("k", "a") is True
    await claims.release("k", "a")
    assert [await other.claim("k", owner) for owner in ("a", "b")] == [Claim.HANDLED, Claim.HANDLED]
    assert await other.commit("k", "b") is False


async def test_only_the_owner_releases(open_store: Open) -> None:
    claims = open_store()
    await claims.release("k", "a")
    assert await claims.claim("k", "a") is Claim.MINE
    await claims.release("k", "b")
    assert await claims.claim("k", "b") is Claim.HELD
    await claims.release("k", "a")
    assert await claims.claim("k", "b") is Claim.MINE


async def test_a_claim_ends_with_its_lease(open_store: Open) -> None:
    claims = open_store(lease_s=0.05)
    assert await claims.claim("k", "dead") is Claim.MINE
    await until_mine(claims, "k", "b")
    # The lease of this owner may have ended too, but nobody took the key since.
    assert await claims.commit("k", "b") is True
    assert await claims.commit("k", "dead") is False
    await claims.release("k", "dead")
    assert await claims.claim("k", "c") is Claim.HANDLED


async def test_a_renewed_claim_outlives_a_shorter_lease(open_store: Open) -> None:
    short, long = open_store(lease_s=0.05), open_store(lease_s=60)
    if short is long:
        pytest.skip("memory has one lease")
    assert await short.claim("k", "a") is Claim.MINE
    await until_mine(long, "k", "a")
    await until_mine(short, "another", "b")
    await until_mine(short, "another", "c")
    assert await short.claim("k", "b") is Claim.HELD


async def test_what_is_handled_is_forgotten_after_the_window(open_store: Open) -> None:
    claims = open_store(window_s=0.05)
    await claims.claim("k", "a")
    assert await claims.commit("k", "a") is True
    await until_mine(claims, "k", "b")
    assert await claims.commit("k", "b") is True


async def test_a_commit_needs_no_claim_that_still_stands(open_store: Open) -> None:
    claims = open_store()
    assert await claims.commit("k", "a") is True
    assert await claims.claim("k", "b") is Claim.HANDLED


async def test_of_many_that_claim_at_the_same_time_one_succeeds(open_store: Open) -> None:
    stores = [open_store() for _ in range(3)]
    keys = [f"k{number}" for number in range(20)]
    for final in (Claim.HELD, Claim.HANDLED):
        asked = [(store, key, f"{final}{at}") for key in keys for at, store in enumerate(stores * 3)]
        outcomes = await asyncio.gather(*(store.claim(key, owner) for store, key, owner in asked))
        won = [who for who, outcome in zip(asked, outcomes, strict=True) if outcome is Claim.MINE]
        if final is Claim.HELD:
            assert sorted(key for _, key, _ in won) == sorted(keys)
            assert set(outcomes) == {Claim.MINE, Claim.HELD}
            assert all(await asyncio.gather(*(store.commit(key, owner) for store, key, owner in won)))
        else:
            assert set(outcomes) == {Claim.HANDLED}


STRANGE = [
    "",
    " ",
    "k",
    "K",
    "é",
    "e\u0301",
    "a'b",
    'a"b',
    "a%b",
    "a\nb",
    "a\0b",
    "\ud800",
    "blake2b:",
    "x" * 512,
    "x" * 5000,
]


async def test_any_text_is_a_key_of_its_own(open_store: Open) -> None:
    claims, other = open_store(), open_store()
    for key in STRANGE:
        assert await claims.claim(key, "a") is Claim.MINE, key
        assert await claims.commit(key, "a") is True
    assert [await other.claim(key, "b") for key in STRANGE] == [Claim.HANDLED] * len(STRANGE)


async def test_groups_do_not_see_each_other(open_store: Open) -> None:
    claims, other = open_store(group="billing"), open_store(group="shipping")
    if claims is other:
        pytest.skip("memory belongs to one group")
    await claims.commit("k", "a")
    assert await other.claim("k", "b") is Claim.MINE


async def test_expired_rows_of_sqlite_are_deleted(tmp_path: Path) -> None:
    async with SqliteClaims(tmp_path / "claims.db", group="g", window_s=0.001, lease_s=0.001) as claims:
        for number in range(1501):
            await claims.claim(f"k{number}", "a")
    with sqlite3.connect(tmp_path / "claims.db") as connection:
        assert connection.execute("SELECT count(*) FROM sprocket_claims").fetchone()[0] < 600
    connection.close()


async def test_many_that_open_a_new_file_of_sqlite_at_the_same_time(tmp_path: Path) -> None:
    for attempt in range(20):
        stores = [SqliteClaims(tmp_path / f"{attempt}.db", group="g") for _ in range(8)]
        outcomes = await asyncio.gather(*(store.claim("k", str(at)) for at, store in enumerate(stores)))
        assert Counter(outcomes) == {Claim.MINE: 1, Claim.HELD: 7}
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_file_that_is_not_of_sqlite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "claims.db").write_bytes(b"not a database, and longer than the header of one" * 20)
    async with SqliteClaims(tmp_path / "claims.db", group="g") as claims:
        with pytest.raises(sqlite3.DatabaseError, match="not a database"):
            await claims.claim("k", "a")


async def test_expired_rows_of_postgresql_are_deleted(postgres_url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE SCHEMA other")
    settings: dict[str, Any] = {"group": "g", "table": "other.claims", "window_s": 0.001, "lease_s": 0.001}
    async with PostgresClaims(postgres_url, **settings) as claims:
        for number in range(1501):
            await claims.claim(f"k{number}", "a")
    assert await connection.fetchval("SELECT count(*) FROM other.claims") < 600
    await connection.close()


async def test_two_that_create_the_table_at_the_same_time(postgres_url: str) -> None:
    stores = [PostgresClaims(postgres_url, group="g", table="created") for _ in range(12)]
    outcomes = await asyncio.gather(*(store.claim("k", f"{at}") for at, store in enumerate(stores)))
    assert sorted(outcome.name for outcome in outcomes) == ["HELD"] * 11 + ["MINE"]
    for store in stores:
        await store.close()


async def test_clients_of_the_caller_stay_open(redis_url: str, postgres_url: str) -> None:
    import asyncpg
    from redis.asyncio import Redis

    async with Redis.from_url(redis_url, decode_responses=True) as client:
        async with RedisClaims(client, group="callers") as claims:
            assert await claims.claim("k", "a") is Claim.MINE
            assert await claims.commit("k", "a") is True
            assert await claims.claim("k", "a") is Claim.HANDLED
        assert await client.ping()
    async with asyncpg.create_pool(postgres_url, min_size=0) as pool:
        async with PostgresClaims(pool, group="callers") as table:
            assert await table.claim("k", "a") is Claim.MINE
        assert await pool.fetchval("SELECT 1") == 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SqliteClaims(5, group="g"), "path is an int"),  # type: ignore[arg-type]
        (lambda: SqliteClaims("x", group="a b"), "character that is not allowed"),
        (lambda: SqliteClaims("x", group="g", lease_s=0), "lease_s is 0"),
        (lambda: RedisClaims(5, group="g"), "pass a URL or a client"),
        (lambda: RedisClaims("nowhere", group="g"), "no URL of a Redis server"),
        (lambda: PostgresClaims(5, group="g"), "pass a URL or a pool"),
        (lambda: PostgresClaims("postgresql://", group="g", table="a; b"), "is no name"),
        (lambda: PostgresClaims("postgresql://", group="g", window_s=-1), "window_s is -1"),
    ],
)
def test_constructor_names_the_argument_that_is_wrong(make: Callable[[], object], reason: str) -> None:
    with pytest.raises((IllegalArgument, IllegalMessage), match=reason):
        make()


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("redis.asyncio", lambda: RedisClaims("redis://h", group="g"), "redis"),
        ("asyncpg", lambda: PostgresClaims("postgresql://h", group="g"), "postgresql"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], object], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(IllegalArgument, match=rf"pip install 'sprocket-mq\[{extra}\]'"):
        make()
