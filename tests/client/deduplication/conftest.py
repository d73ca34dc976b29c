"""Servers of databases, one of each for all tests that do not kill it."""

from collections.abc import Iterator

import pytest

from tests.client.deduplication.databases import DatabaseMissingError, Postgres, Redis


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    yield from _url(Redis)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    yield from _url(Postgres)


def _url(kind: type[Redis] | type[Postgres]) -> Iterator[str]:
    try:
        server = kind()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        server.start()
        yield server.url
