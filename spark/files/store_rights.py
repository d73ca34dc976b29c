"""What is said where the right to read a store is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from sprocket.common.errors import ConfigError


@contextmanager
def store_rights() -> Iterator[None]:
    """Raises ConfigError, which says what to do, for a PermissionError inside."""
    try:
        yield
    except PermissionError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; who runs Spark needs the right to read the store, on every machine"
        ) from error
