"""Errors of writes to a table, as one line with the table and the remedy."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# Packages for commits report a full disk in their own words, without an error number.
_FULL_WORDS: Final = ("no space left", "disk is full", "quota exceeded")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def trouble(error: Exception, directory: Path) -> str:
    """Return the text for `error` of a write below `directory`."""
    text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL or any(words in text.lower() for words in _FULL_WORDS):
        text = f"the disk is full ({text}); free space and start again: it continues after the last commit"
    return f"{directory}: {text}"


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn an OSError in the block into a StoreError that names the directory."""
    try:
        yield
    except OSError as error:
        raise StoreError(trouble(error, directory)) from error
