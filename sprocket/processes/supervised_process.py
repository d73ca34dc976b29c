"""A process that is started again when it ends, as long as its supervisor runs.

An edge file: it looks at the process again and again.
"""

import asyncio
import logging
import signal
from typing import Final

from sprocket.common.clock import Clock
from sprocket.processes.child_process import ChildProcess

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.2
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# Who ran so long has started well: the next end begins the pauses anew.
_WELL_S: Final = 60.0


class SupervisedProcess:
    """Keeps `child` running, in the loop that `start` is called in; `first_pause_s` doubles with each quick end."""

    def __init__(self, child: ChildProcess, clock: Clock, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._child = child
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Of the process now.  Raises ProcessNotStarted between an end and the next start."""
        return self._child.pid

    async def start(self) -> None:
        """Launch it; raises OSError if that cannot be."""
        self._launch()
        self._watch = asyncio.get_running_loop().create_task(self._look_after())

    async def stop(self) -> None:
        """Send SIGTERM and wait for the end; SIGKILL if it takes too long."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        await asyncio.to_thread(self._child.end, signal.SIGTERM)
        logger.info("event=process_stopped name=%s", self._child.name)

    def _launch(self) -> None:
        self._child.launch()
        logger.info("event=process_started name=%s pid=%d log=%s", self._child.name, self._child.pid, self._child.log)

    async def _look_after(self) -> None:
        pause_s = self._first_pause_s
        launched = self._clock.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            status = self._child.exit_status
            if status is None:
                continue
            if self._clock.monotonic() - launched > _WELL_S:
                pause_s = self._first_pause_s
            logger.error(
                "event=process_ended name=%s status=%d started_again_in_s=%g", self._child.name, status, pause_s
            )
            self._child.end(signal.SIGTERM)  # it is over: this gives its pipe back
            is_launched = False
            while not is_launched:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                try:
                    self._launch()
                    is_launched = True
                except OSError as error:
                    logger.error("event=process_not_started name=%s reason=%r", self._child.name, str(error))
            launched = self._clock.monotonic()
