"""Keeps some of the process's descriptors for its own files: a stranger who connects must not take the last one.

A store that cannot open a file stops, as it would for any other failure of its disk.
"""

import logging
import resource
from typing import Final

logger = logging.getLogger(__name__)

# Shares of all descriptors: a quarter is what queues may hold (`store.disk.open_files`), the rest is for the log and
# for connections of our own.
_QUEUES: Final = 4
_OWN: Final = 16
_LEAST: Final = 48
# Connections are taken again when so many have left, as a share.
_SLACK: Final = 64


class DescriptorReserve:
    """Whether there is room for a connection.  Belongs to all listeners of a process; says once what changes."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is how many descriptors there may be; that of the process if it is None."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
        self._is_endless = soft == resource.RLIM_INFINITY
        self._slack = soft // _SLACK
        self._first_kept = soft - max(_LEAST, soft // _QUEUES + soft // _OWN)
        self._is_refusing = False
        self.refused = 0

    def has_room(self, descriptor: int) -> bool:
        """Whether the connection with this descriptor may stay.

        The system gives the lowest number that is free, so this one says how many are in use.
        """
        if self._is_endless:
            return True
        room = descriptor < self._first_kept - (self._slack if self._is_refusing else 0)
        if not room:
            self.refused += 1
        if room == self._is_refusing:
            self._is_refusing = not room
            logger.warning(
                "event=descriptors state=%s used=%d kept_from=%d refused=%d note=%r",
                "accepting" if room else "refusing", descriptor, self._first_kept, self.refused,
                "raise the limit of open files (ulimit -n) for more connections",
            )  # fmt: skip
        return room
