"""Log lines that a peer can cause, limited for each reason and peer.

One request can cost a line, and a peer sends 100,000 requests a second.  Without a limit such lines push the history of
a server out of its files.  So every line that a request, a connection or a mistake of a peer can cause is written by
`peer_lines`, and `tests/tidy` finds those that are not.

A reason is the template of a line.  In a minute that begins with its first line, the first lines are written at once, a
few for each peer.  The others are counted, and one line tells their number when the minute has ended::

    event=lines_left_out of=send_refused lines=235990 seconds=60 most_from=10.0.0.7
"""

import logging
from collections import Counter
from threading import Lock
from typing import Final, TypeAlias

from sprocket.common.clock import Clock, SystemClock

# (host, port), or the text of an address or a host.  All ports of a host are one peer.
Peer: TypeAlias = tuple[str, int] | str

MAX_LINES_OF_PEER: Final = 10
MAX_LINES: Final = 100
WINDOW_S: Final = 60.0


class PeerLines:
    """Writer of the lines that peers can cause.  Any thread may call it.

    It holds one window for each template in use, and the peers of at most `MAX_LINES` lines in it.  Lines of the empty
    peer, which nobody knows, are limited for all of them only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._lock = Lock()

    def info(self, logger: logging.Logger, peer: Peer, template: str, *values: object) -> None:
        """Write a line of level INFO, as `log` does."""
        self.log(logger, logging.INFO, peer, template, *values)

    def warning(self, logger: logging.Logger, peer: Peer, template: str, *values: object) -> None:
        """Write a line of level WARNING, as `log` does."""
        self.log(logger, logging.WARNING, peer, template, *values)

    def error(
        self,
        logger: logging.Logger,
        peer: Peer,
        template: str,
        *values: object,
        exc_info: BaseException | bool | None = None,
    ) -> None:
        """Write a line of level ERROR, as `log` does."""
        self.log(logger, logging.ERROR, peer, template, *values, exc_info=exc_info)

    def log(
        self,
        logger: logging.Logger,
        level: int,
        peer: Peer,
        template: str,
        *values: object,
        exc_info: BaseException | bool | None = None,
    ) -> None:
        """Write a line that `peer` caused, or count it as left out.  An empty `peer` is one that nobody knows."""
        if not logger.isEnabledFor(level):
            return
        with self._lock:
            now_s = self._clock.monotonic()
            window = self._windows.get(template)
            if window is None or now_s >= window.ends_at_s:
                if window is not None:
                    window.summarize(template)
                window = self._windows[template] = _Window(logger, level, now_s + WINDOW_S)
            has_room = window.take(_host(peer))
        if has_room:
            logger.log(level, template, *values, exc_info=exc_info)

    def flush(self) -> None:
        """Tell what was left out in the minutes that have ended.  Servers call it every few seconds."""
        self._close_until(self._clock.monotonic())

    def finish(self) -> None:
        """Tell what was left out so far, and begin again.  For the end of a process."""
        self._close_until(float("inf"))

    def _close_until(self, now_s: float) -> None:
        with self._lock:
            for template, window in list(self._windows.items()):
                if window.ends_at_s <= now_s:
                    del self._windows[template]
                    window.summarize(template)


class _Window:
    """One minute of one reason."""

    def __init__(self, logger: logging.Logger, level: int, ends_at_s: float) -> None:
        self._logger = logger
        self._level = level
        self.ends_at_s = ends_at_s
        self._written = 0
        self._left_out = 0
        # Lines of each peer that had a line written, also those that were left out.
        self._lines: Counter[str] = Counter()

    def take(self, host: str) -> bool:
        """Count a line; return whether it may be written."""
        has_room = self._written < MAX_LINES and (not host or self._lines[host] < MAX_LINES_OF_PEER)
        if has_room or host in self._lines:
            self._lines[host] += 1
        self._written += has_room
        self._left_out += not has_room
        return has_room

    def summarize(self, template: str) -> None:
        """Write the line that tells how many lines were left out, if any."""
        if self._left_out:
            event = template.partition(" ")[0].removeprefix("event=")
            host = self._lines.most_common(1)[0][0] or "-"
            text = "event=lines_left_out of=%s lines=%d seconds=%d most_from=%s"
            self._logger.log(self._level, text, event, self._left_out, WINDOW_S, host)


def _host(peer: Peer) -> str:
    if not isinstance(peer, str):
        return peer[0]
    host, _, port = peer.rpartition(":")
    return host if port.isdigit() else peer


# The one of this process, as loggers are.
peer_lines: Final = PeerLines(SystemClock())
