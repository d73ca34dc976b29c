"""Periodic work of a running broker."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from sprocket.common.errors import SprocketError

logger = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None] | None]


async def pause(seconds: float) -> None:
    """Wait for `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().create_future()
    except TimeoutError:
        return


class Periodic:
    """Periodic call of `work`; `period_s` is the pause between the end of one call and the start of the next.

    A period that may change is a function, which is called before each pause.  An error is logged; the calls go on.
    """

    def __init__(self, name: str, period_s: float | Callable[[], float], work: Work) -> None:
        self.name = name
        self._period_s = period_s
        self.work = work
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Future[None] | None = None
        self._running = False

    def start(self) -> None:
        """Start; the first call is after one period."""
        self._running = True
        self._set_timer()

    async def stop(self) -> None:
        """Start no further call, and wait for the running one."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await asyncio.wait([self._task])

    def _set_timer(self) -> None:
        if self._running:
            period_s = self._period_s if isinstance(self._period_s, float | int) else self._period_s()
            self._timer = asyncio.get_running_loop().call_later(period_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        try:
            answer = self.work()
        except Exception as error:
            self._log(error)
            answer = None
        if inspect.isawaitable(answer):
            self._task = asyncio.ensure_future(self._finish(answer))
        else:
            self._set_timer()

    async def _finish(self, answer: Awaitable[None]) -> None:
        try:
            await answer
        except Exception as error:
            self._log(error)
        self._task = None
        self._set_timer()

    def _log(self, error: Exception) -> None:
        # The text of a SprocketError says everything, so it needs no stack trace.
        trace = None if isinstance(error, SprocketError) else error
        logger.error("event=periodic_work_failed work=%s reason=%r", self.name, str(error), exc_info=trace)
