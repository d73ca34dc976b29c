"""One broker and one server of each kind of database for all tests; each takes a database and a topic of its own."""

import asyncio
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from sprocket.testing import Broker
from tests.client.deduplication.databases import DatabaseMissingError, MariaDb, Postgres

_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("outbox")) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"Orders{next(_numbers)}"
    broker.create_topic(name, 4)
    return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    try:
        server = Postgres()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        server.start()
        yield server


def new_database(postgres: Postgres) -> str:
    """Return the URL of a new database."""
    import asyncpg

    name = f"outbox{next(_numbers)}"

    async def create() -> None:
        connection = await asyncpg.connect(postgres.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return re.sub(r"/postgres\?", f"/{name}?", postgres.url)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    try:
        server = MariaDb()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def mysql_url(mariadb: MariaDb) -> str:
    """URL of an empty database of MariaDB."""
    name = f"outbox{next(_numbers)}"
    mariadb.create(name)
    return mariadb.url(name)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of each kind."""
    if request.param == "sqlite":
        (tmp_path / "shop.db").touch()
        return f"sqlite:///{tmp_path}/shop.db"
    if request.param == "mysql":
        return str(request.getfixturevalue("mysql_url"))
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    return new_database(postgres)
