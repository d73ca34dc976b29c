"""URLs of databases for SQLAlchemy, which are told the driver."""

from typing import Final

_SYNC: Final = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_ASYNC: Final = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy", "sqlite": "sqlite+aiosqlite"}


def sync_url(url: str) -> str:
    """Return `url` with a driver for programs without asyncio."""
    kind, _, rest = url.partition("://")
    return f"{_SYNC.get(kind, kind)}://{rest}"


def async_url(url: str) -> str:
    """Return `url` with a driver for asyncio."""
    kind, _, rest = url.partition("://")
    return f"{_ASYNC[kind]}://{rest}"
