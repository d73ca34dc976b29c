"""Extras of `setup.cfg`: which one brings an optional package, for errors that say what to install.

`pip install sprocket-mq` brings what the client needs.  Everything else is optional.
"""

from collections.abc import Mapping
from typing import Final

# The name that Python imports, then the extra.  tests/common/test_extras.py compares it with `setup.cfg`.
EXTRA_OF: Final[Mapping[str, str]] = {
    "lz4": "lz4",
    "zstandard": "zstd",
    "uvloop": "uvloop",
    "click": "server",
    "cronsim": "server",
    "cryptography": "server",
    "isal": "server",
    "jwt": "server",
    "numpy": "server",
    "rich": "server",
    "tzdata": "server",
    "yaml": "server",
    "pysyncobj": "failover",
    "pyspark": "spark",
    "pyarrow": "spark",
    "deltalake": "spark",
    "pyiceberg": "spark",
    "fastavro": "avro",
    "matplotlib": "spark",
    "jinja2": "spark",
    "grpc": "grpc",
    "grpc_health": "proxy",
    "grpc_reflection": "proxy",
    "h2corn": "proxy",
    "google": "protobuf",
    "pydantic": "pydantic",
    "aiohttp": "dashboard",
    "obstore": "tier",
    "opentelemetry": "metrics",
    "pytest": "testing",
    "taskiq": "taskiq",
    "celery": "celery",
    "dramatiq": "dramatiq",
    "django": "django",
    "django_tasks": "django",
    "kombu": "celery",
    "amqp": "celery",
    "faststream": "faststream",
    "fastapi": "fastapi",
    "prometheus_client": "prometheus",
    "redis": "redis",
    "asyncpg": "postgresql",
    "asyncmy": "mysql",
    "sqlalchemy": "outbox-sqlalchemy",
}


def install(extra: str) -> str:
    """Return the command that installs `extra`."""
    return f"pip install 'sprocket-mq[{extra}]'"


def missing_package(error: ImportError, what: str, smallest: str = "") -> str | None:
    """Return a text that says which package `what` lacks and how to install it; None if no extra brings it.

    `smallest` is an extra that brings all that `what` needs, if the package's own brings more.
    """
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(package) and (smallest or EXTRA_OF[package])
    return None if extra is None else f"{what} needs {package}, which is not installed: {install(extra)}"
