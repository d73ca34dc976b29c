"""Every way to write a row: in the application's transaction, read back as the same message, keys in commit order."""

import asyncio
import sqlite3
import ssl
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from sprocket import IllegalArgument, IllegalMessage, Message
from sprocket.outbox import asyncpg as with_asyncpg
from sprocket.outbox import sqlalchemy as with_sqlalchemy
from sprocket.outbox import sqlite as with_sqlite
from sprocket.outbox.database import DatabaseUnusable, mysql_arguments, open_database, place_of
from sprocket.outbox.row import OutboxRow, message_of
from tests.clock import ManualClock
from tests.outbox.urls import async_url, sync_url
from tests.remoting.tls_files import Files

_FULL = Message(
    "Orders", b"\x00\xff", tags="paid", keys=["a", "b"], properties={"x": "y"}, flag=3,
    deliver_at=datetime(2030, 1, 1, tzinfo=UTC),
)  # fmt: skip


async def rows(url: str, lease_ms: int = 1) -> list[OutboxRow]:
    database = open_database(url)
    try:
        return sorted(await database.claim(lease_ms, 0, 100))
    finally:
        await database.close()


def parts(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in Message.__slots__ if name != "unique_key"}


async def test_a_message_comes_back_from_any_table_as_it_was_written(url: str) -> None:
    sync_engine = sa.create_engine(sync_url(url), poolclass=NullPool)
    # The table of Alembic and that of the relay are the same.
    metadata = sa.MetaData()
    with_sqlalchemy.outbox_table(metadata, with_locks=url.startswith("mysql"))
    metadata.create_all(sync_engine)
    clock = ManualClock()
    with Session(sync_engine) as session, session.begin():
        with_sqlalchemy.add(session, _FULL, key="k")
        with_sqlalchemy.add(session, Message("Orders", b"delayed", delay=60), clock=clock)
    async_engine = create_async_engine(async_url(url), poolclass=NullPool)
    async with async_engine.begin() as connection:
        await with_sqlalchemy.add_async(connection, Message("Orders", b"async", unique_key="mine"), key="k")
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            with_sqlite.create(connection)
            with_sqlite.add(connection, _FULL, key="k")
    elif url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await with_asyncpg.add(connection, _FULL, key="k")
        with pytest.raises(IllegalArgument, match="no transaction is open"):
            await with_asyncpg.add(connection, _FULL)
        await connection.close()
    else:
        with sync_engine.begin() as connection:
            with_sqlalchemy.add(connection, _FULL, key="k")
    found = await rows(url)
    first, delayed, by_async, last = map(message_of, found)
    assert parts(first) == parts(last) == parts(_FULL)
    assert delayed.deliver_at_ms == clock.wall_ms() + 60_000
    assert by_async.unique_key == "mine"
    assert [row.ordering_key for row in found] == ["k", None, "k", "k"]
    assert len({row.unique_key for row in found}) == 4


async def test_the_second_transaction_of_a_key_waits_for_the_commit_of_the_first(postgres_url: str) -> None:
    await (database := open_database(postgres_url)).create()
    await database.close()
    first, second, other = [await asyncpg.connect(postgres_url) for _ in range(3)]
    opened = first.transaction()
    await opened.start()
    await with_asyncpg.add(first, Message("Orders", b"1"), key="k")

    async def write(connection: Any, body: bytes, key: str) -> None:
        async with connection.transaction():
            await with_asyncpg.add(connection, Message("Orders", body), key=key)

    waiting = asyncio.create_task(write(second, b"2", "k"))
    await write(other, b"3", "another")
    await other.execute("SELECT pg_sleep(0.2)")
    assert not waiting.done()
    assert [row.body for row in await rows(postgres_url, lease_ms=0)] == [b"3"]
    await opened.commit()
    await waiting
    assert [row.body for row in await rows(postgres_url) if row.ordering_key == "k"] == [b"1", b"2"]
    for connection in (first, second, other):
        await connection.close()


async def test_in_mysql_the_second_transaction_of_a_key_waits_too_and_relays_wait_for_neither(mysql_url: str) -> None:
    await (database := open_database(mysql_url)).create()
    await database.close()
    engine = create_async_engine(async_url(mysql_url), poolclass=NullPool)

    async def write(body: bytes, key: str) -> None:
        async with engine.begin() as connection:
            await with_sqlalchemy.add_async(connection, Message("Orders", body), key=key)

    async with engine.begin() as first:
        await with_sqlalchemy.add_async(first, Message("Orders", b"1"), key="k")
        waiting = asyncio.create_task(write(b"2", "k"))
        await write(b"3", "another")
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        assert [row.body for row in await rows(mysql_url, lease_ms=0)] == [b"3"]
    await waiting
    await engine.dispose()
    assert [row.body for row in await rows(mysql_url) if row.ordering_key == "k"] == [b"1", b"2"]


async def test_keys_of_mysql_differ_by_case_and_accents_and_need_the_table_of_locks(mysql_url: str) -> None:
    engine = sa.create_engine(sync_url(mysql_url), poolclass=NullPool)
    metadata = sa.MetaData()
    with_sqlalchemy.outbox_table(metadata)
    metadata.create_all(engine)
    with engine.begin() as connection:
        for key in ("a", "A", "\u00e4"):
            with_sqlalchemy.add(connection, Message("Orders", key.encode()), key=key)
    database = open_database(mysql_url)
    assert len(await database.claim(100, 10, 1)) == 1
    assert len(await database.claim(100, 10, 9)) == 2
    await database.close()
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM sprocket_outbox_lock"))
        with pytest.raises(IllegalArgument, match="lacks its rows; start the relay once"):
            with_sqlalchemy.add(connection, Message("Orders", b"x"), key="k")
    database = open_database(mysql_url)
    with pytest.raises(DatabaseUnusable, match="lacks its rows"):
        await database.claim(200, 150, 9)
    await database.create()
    assert len(await database.claim(200, 150, 9)) == 3
    await database.close()


async def test_later_rows_of_a_key_stay_while_an_earlier_one_is_leased(url: str) -> None:
    database = open_database(url)
    await database.create()
    engine = sa.create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        for body, key in ((b"a1", "a"), (b"b1", "b"), (b"a2", "a"), (b"n", None)):
            with_sqlalchemy.add(connection, Message("Orders", body), key=key)
    one = await database.claim(100, 10, 1)
    others = await database.claim(100, 10, 9)
    after = await database.claim(300, 200, 9)
    await database.delete([row.id for row in after[:3]])
    left = await database.claim(500, 400, 9)
    await database.close()
    assert [row.body for row in one] == [b"a1"]
    assert sorted(row.body for row in others) == [b"b1", b"n"]
    assert [row.body for row in sorted(after)] == [b"a1", b"b1", b"a2", b"n"]
    assert {(row.available_ms, row.first_leased_ms) for row in after} == {(300, 10), (300, 200)}
    assert [row.id for row in left] == [row.id for row in after[3:]]


@pytest.mark.parametrize("key", ["", "x" * 2000, 7, "a\x00"])
def test_a_key_that_cannot_be_stored_is_refused(key: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        with_sqlite.create(connection)
        with pytest.raises(IllegalMessage, match="pass a text"):
            with_sqlite.add(connection, Message("Orders", b"x"), key=key)
        with pytest.raises(IllegalMessage, match="choose the queue"):
            with_sqlite.add(connection, Message("Orders", b"x", priority=1), key="k")


@pytest.mark.parametrize("url", ["postgresql://shop:secret@127.0.0.1:1/shop", "mysql://shop:secret@127.0.0.1:1/shop"])
async def test_a_server_that_does_not_answer_is_named_without_its_password(url: str) -> None:
    with pytest.raises(DatabaseUnusable, match=r"database 127\.0\.0\.1:1/shop: .*; check the URL, and that") as raised:
        await open_database(url).create()
    assert "secret" not in str(raised.value)
    with pytest.raises((DatabaseUnusable, IllegalArgument), match=r"database 127\.0\.0\.1:port/shop: "):
        await open_database(url.replace(":1/", ":port/")).create()


def test_another_database_is_refused() -> None:
    with pytest.raises(IllegalArgument, match=r"pass postgresql://.* mysql://.* or sqlite:///"):
        open_database("oracle://localhost/shop")
    with pytest.raises(IllegalArgument, match="allowed are unix_socket"):
        open_database("mysql://localhost/shop?sslmode=require")
    with pytest.raises(IllegalArgument, match="ssl_key needs ssl_cert"):
        open_database("mysql://localhost/shop?ssl_key=k.pem")


def test_a_certificate_for_mysql_asks_for_tls_without_a_ca_too(tmp_path: Path) -> None:
    certificate, key = Files(tmp_path).issue("relay")
    context = mysql_arguments(f"mysql://localhost/shop?ssl_cert={certificate}&ssl_key={key}")["ssl"]
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://app:secret@db:5432/shop?sslmode=require", "db:5432/shop"),
        ("postgresql://db/shop?user=app&password=secret", "postgresql://db/shop"),
        ("postgresql://app@db/shop?password=s@secret", "db/shop"),
        ("postgresql://app:secr/et@db/shop", "db/shop"),
        ("postgresql://app:secr?et@db/shop", "postgresql"),
        ("postgresql://app:secr#et@db/shop", "postgresql"),
        ("sqlite:////var/shop.db", "sqlite:////var/shop.db"),
    ],
)
def test_what_people_see_of_a_url_has_no_password(url: str, place: str) -> None:
    assert place_of(url) == place


async def test_no_error_of_a_database_shows_a_password_of_its_url() -> None:
    with pytest.raises(DatabaseUnusable, match=r"database postgresql://127\.0\.0\.1:1/shop: ") as refused:
        await open_database("postgresql://127.0.0.1:1/shop?user=app&password=secret").create()
    assert "secret" not in str(refused.value)
    for url in ("db/shop?password=secret", "app:secret@db/shop", "oracle://app:secret@db/shop"):
        with pytest.raises(IllegalArgument, match="pass postgresql://") as refused_at_once:
            open_database(url)
        assert "secret" not in str(refused_at_once.value)
