"""How far translated offsets may go where a link leads back: not over messages that no group of the source has seen.

A message that applications sent to the target comes to the source's queue later than what groups have consumed there.
The map of offsets knows it only when this link has read it as an echo.  So an offset of the target's queue is a limit
until this link has read all that the source's queue had when the link back had copied up to there.
"""

from typing import Final

from replicate.protocol.copies import SourceQueue

# Limit where no link leads back.
NO_LINK: Final = 1 << 62


class Back:
    """Limits of the queues of one link; `copied` says where the link back goes on in the target's queue of each."""

    def __init__(self) -> None:
        self.copied: dict[SourceQueue, int] = {}
        self._waiting: dict[SourceQueue, tuple[int, int]] = {}  # a limit to be, and up to where to read for it
        self._limits: dict[SourceQueue, int] = {}

    def limit(self, queue: SourceQueue, end: int, read_to: int) -> int:
        """Return the limit in the target's queue.

        `end` is the end of the source's queue, which was asked for after `copied` was set; this link has read the queue
        to before `read_to`.
        """
        copied = self.copied.get(queue, 0)
        if copied == NO_LINK:
            return NO_LINK
        # That of the look before, as a rule: under load this link is always a little behind the end.
        for limit, until in (self._waiting.pop(queue, (0, 0)), (copied, end)):
            if read_to >= until:
                self._limits[queue] = max(limit, self._limits.get(queue, 0))
            else:
                self._waiting.setdefault(queue, (limit, until))
        return self._limits.get(queue, 0)
