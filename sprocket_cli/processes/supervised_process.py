"""Process that is restarted whenever it ends, while its supervisor runs.

An edge file: it polls the process.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.processes.child_process import ChildProcess

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.2
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
# After a run of this length, the pauses start at the first one again.
_STABLE_S: Final = 60.0
_MAX_LOG_BYTES: Final = 8 << 20


class SupervisedProcess:
    """Supervisor of `child`, in the event loop of `start`; the pause before a restart doubles with each early end.

    Of a log of more than `max_log_bytes` the end is kept.
    """

    def __init__(
        self, child: ChildProcess, clock: Clock, first_pause_s: float = _FIRST_PAUSE_S,
        ended: Callable[[int], None] = lambda status: None, max_log_bytes: int = _MAX_LOG_BYTES,
    ) -> None:  # fmt: skip
        """`ended` gets the exit status of each early end."""
        self._ended = ended
        self._child = child
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._max_log_bytes = max_log_bytes
        self._supervision: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Id of the running process.  Raises ProcessNotStarted between an end and the restart."""
        return self._child.pid

    async def start(self, ready_s: float | None = None) -> None:
        """Start the process and its supervision.  With `ready_s` it must print a line within that time.

        Raises OSError, and ProcessNotStarted after ending the process.
        """
        self._launch()
        if ready_s is not None:
            try:
                await asyncio.to_thread(self._child.ready_line, ready_s)
            except BaseException:
                await asyncio.to_thread(self._child.end, signal.SIGTERM)
                raise
        self._supervision = asyncio.get_running_loop().create_task(self._supervise())

    async def stop(self) -> None:
        """Send SIGTERM and wait for the end; send SIGKILL if it takes too long."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)
            self._supervision = None
        await asyncio.to_thread(self._child.end, signal.SIGTERM)
        logger.info("event=process_stopped name=%s", self._child.name)

    def _launch(self) -> None:
        self._child.launch()
        logger.info("event=process_started name=%s pid=%d log=%s", self._child.name, self._child.pid, self._child.log)

    async def _supervise(self) -> None:
        pause_s = self._first_pause_s
        launched = self._clock.monotonic()
        while True:
            await asyncio.sleep(_POLL_S)
            self._child.shorten_log(self._max_log_bytes)
            status = self._child.exit_status
            if status is None:
                continue
            if self._clock.monotonic() - launched > _STABLE_S:
                pause_s = self._first_pause_s
            logger.error(
                "event=process_ended name=%s status=%d started_again_in_s=%g", self._child.name, status, pause_s
            )
            self._ended(status)
            self._child.end(signal.SIGTERM)  # it has ended: this closes its pipe
            is_launched = False
            while not is_launched:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                try:
                    self._launch()
                    is_launched = True
                except OSError as error:
                    logger.error("event=process_not_started name=%s reason=%r", self._child.name, str(error))
            launched = self._clock.monotonic()
