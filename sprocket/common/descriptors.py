"""Reserve of file descriptors for the process's own files, so that connections of strangers cannot use all of them.

A store that cannot open a file stops, as after any other disk failure.
"""

import logging
import resource
from typing import Final

from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

# Shares of all descriptors.  Queues may hold a quarter (`store.disk.open_files`).  The sixteenth is for the log and for
# connections that this process opens.
_QUEUES: Final = 4
_OWN: Final = 16
_MIN_KEPT: Final = 48
# Share of the descriptors that must become free before connections are accepted again.
_SLACK: Final = 64
# Max descriptors that are kept open for files (`sprocket.common.spare_descriptors`).
_MAX_SPARE: Final = 64
# The loop accepts all waiting connections before it refuses the first, on each of a process's listeners.
_BURST: Final = 3
_MIN_BURST: Final = 16


class DescriptorReserve:
    """Reserve that all listeners of a process share.  It logs each change between accepting and refusing once."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is the maximum number of descriptors; None takes the limit of the process."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
        self._is_endless = soft == resource.RLIM_INFINITY
        self._soft = soft
        self._slack = soft // _SLACK
        self._kept = max(_MIN_KEPT, soft // _QUEUES + soft // _OWN)
        self._first_kept = soft - self._kept
        self._is_refusing = False
        self.refused = 0

    @property
    def burst(self) -> int:
        """Maximum number of connections that a listener may accept before it can refuse one: its backlog."""
        return max(_MIN_BURST, self._kept // _BURST)

    @property
    def spare(self) -> int:
        """Number of descriptors that the process keeps open for files, while connections may take all others."""
        return _MAX_SPARE if self._is_endless else min(_MAX_SPARE, self._soft // _OWN)

    @property
    def room(self) -> int | None:
        """Maximum number of descriptors that connections may have; None for no limit."""
        return None if self._is_endless else max(1, self._first_kept)

    @property
    def for_callers(self) -> int | None:
        """Maximum number of connections that a proxy opens for single clients; None for no limit.

        They get the share of queue files: a proxy that connects to brokers in other processes has no such files.
        """
        return None if self._is_endless else self._soft // _QUEUES

    def has_room(self, descriptor: int) -> bool:
        """Return whether the connection with this descriptor may stay.

        The system gives the lowest free number, so the number tells how many descriptors are in use.
        """
        if self._is_endless:
            return True
        room = descriptor < self._first_kept - (self._slack if self._is_refusing else 0)
        if not room:
            self.refused += 1
        if room == self._is_refusing:
            self._is_refusing = not room
            peer_lines.warning(
                logger, "", "event=descriptors state=%s used=%d kept_from=%d refused=%d note=%r",
                "accepting" if room else "refusing", descriptor, self._first_kept, self.refused,
                "raise the limit of open files (ulimit -n) for more connections",
            )  # fmt: skip
        return room
