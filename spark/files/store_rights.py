"""Error for a missing right to read a store."""

from collections.abc import Iterator
from contextlib import contextmanager

from sprocket.common.errors import ConfigError


@contextmanager
def store_rights() -> Iterator[None]:
    """Turn a PermissionError in the block into a ConfigError that says what to do."""
    try:
        yield
    except PermissionError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; the user of Spark needs the right to read the store, on every machine"
        ) from error
