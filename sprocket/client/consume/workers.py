"""Worker tasks of one `run`, and their clean end."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

logger = logging.getLogger(__name__)

# How long a cancelled `run`, and `close`, wait for running handlers.
GRACE_S: Final = 15.0
RUN_HAS_ALL: Final = "`run` hands out the messages of this consumer; iterate, or make another member for it"


class Workers:
    """Tasks that handle messages side by side; `stop` makes them begin nothing more."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], count: int, stop: Callable[[], None]) -> None:
        self._work = work
        self._count = count
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_current(self) -> bool:
        """Whether the caller is one of the workers, that is, a handler."""
        return asyncio.current_task() in self._tasks

    async def run(self) -> None:
        """Run the workers until all have ended.  Raises what one of them raises.

        After a cancellation running handlers end first, within `GRACE_S`; a second cancellation cancels them too.
        """
        create = asyncio.get_running_loop().create_task
        self._tasks += [create(self._work()) for _ in range(self._count)]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            self._stop()
            await self.ended(GRACE_S)
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def ended(self, limit_s: float) -> None:
        """Wait until all have ended, for at most `limit_s`."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=limit_s)
            if late:
                logger.warning("event=handlers_not_awaited handlers=%d limit_s=%g", len(late), limit_s)


class SigtermStops:
    """Functions to call at SIGTERM, while the program has no handler of its own for it."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` at a SIGTERM inside the context, if this is the main thread and nothing else handles it."""
        is_main = threading.current_thread() is threading.main_thread()
        if not (is_main and (self._stops or self._listens())):
            yield
            return
        self._stops.append(stop)
        try:
            yield
        finally:
            self._stops.remove(stop)
            if not self._stops:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    def _listens(self) -> bool:
        """Handle SIGTERM if nothing else does; return whether it is handled here."""
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        try:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._arrived)
        except NotImplementedError:  # Windows, where no process gets this signal
            return False
        return True

    def _arrived(self) -> None:
        logger.info("event=sigterm consumers=%d", len(self._stops))
        for stop in list(self._stops):
            stop()


# Signals belong to the process.
sigterm_stops: Final = SigtermStops()
