"""Token of a cluster, in a file that something else renews.  An edge: it reads the file."""

import logging
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock

logger = logging.getLogger(__name__)

_READ_EVERY_S: Final = 1.0


class TokenFile:
    """Present token of `path`; the file is read again every second while requests are made.

    A file that cannot be read leaves the last token in use.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises OSError, UnicodeDecodeError."""
        self._path = path
        self._clock = clock
        self._token = path.read_text().strip()
        self._read_s = clock.monotonic()
        self._is_readable = True

    def __call__(self) -> str:
        """Return the token."""
        now_s = self._clock.monotonic()
        if now_s - self._read_s >= _READ_EVERY_S:
            self._read_s = now_s
            try:
                self._token = self._path.read_text().strip()
                self._is_readable = True
            except (OSError, UnicodeDecodeError) as error:
                if self._is_readable:
                    logger.warning("event=token_not_read file=%s reason=%r", self._path, str(error))
                self._is_readable = False
        return self._token
