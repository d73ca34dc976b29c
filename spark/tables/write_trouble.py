"""What goes wrong where a table is written, as one line that names the table and says what to do."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# Packages that commit say it in words of their own, and without a number.
_FULL_WORDS: Final = ("no space left", "disk is full", "quota exceeded")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def trouble(error: Exception, directory: Path) -> str:
    """`error`, which came up when something was written below `directory`."""
    text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL or any(words in text.lower() for words in _FULL_WORDS):
        text = f"the disk is full ({text}); make room and start again: it goes on after the last commit"
    return f"{directory}: {text}"


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Raises StoreError for an OSError: most of them do not say which file they are about."""
    try:
        yield
    except OSError as error:
        raise StoreError(trouble(error, directory)) from error
