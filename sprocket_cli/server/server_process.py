"""Life of a server process: start, print one line, run until a signal or a failure, stop in order.

Exit statuses are those of `exit_codes`.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TextIO

from sprocket.common import failpoints
from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError, InvariantError, RestartNeeded, SprocketError, StoreError
from sprocket.common.free_memory import trim
from sprocket.common.logs.line_format import timed_formatter
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.spare_descriptors import spare_descriptors
from sprocket_cli import exit_codes
from sprocket_cli.processes.stop_signals import STOPPING, stays_ignored
from sprocket_cli.server.long_lived import LongLived

logger = logging.getLogger(__name__)

_LEFT_OUT_S: Final = 5.0
_LONG_LIVED_S: Final = 5.0


class Server(Protocol):
    """A name server or a broker."""

    async def start(self) -> None:
        """Listen and serve."""

    async def stop(self) -> None:
        """Stop accepting, unregister, flush, write the checkpoint, remove ``abort``."""


class Process:
    """One process with one or more servers, which start in order and stop in reverse order.

    A server reports a fatal failure to `fail`.  After `RestartNeeded` the process restarts itself.
    """

    def __init__(self) -> None:
        self._ended: asyncio.Event | None = None
        self._failure: SprocketError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = False

    def fail(self, failure: SprocketError) -> None:
        """End the process because of `failure`.  Any thread may call it; the first failure counts."""
        if self._failure is None:
            self._failure = failure
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    def run(self, factories: Sequence[Callable[[], Server]], announce: Callable[[], str]) -> int:
        """Run a server of each factory until SIGTERM, SIGINT, SIGHUP or a failure.  Returns the exit status.

        A factory is called after the previous server has started.  The text of `announce` is printed at the end.
        """
        import uvloop

        raise_open_files_limit()
        spare_descriptors.keep(DescriptorReserve().spare)
        try:
            failpoints.arm(os.environ.get(failpoints.VARIABLE))
            return uvloop.run(self._run(factories, announce))
        except InvariantError as error:
            _say("".join(traceback.format_exception(error)), sys.stderr)
            return exit_status(error)
        except (SprocketError, OSError) as error:
            _say(f"Error: {error}", sys.stderr)
            return exit_status(error)

    async def _run(self, factories: Sequence[Callable[[], Server]], announce: Callable[[], str]) -> int:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        for number in STOPPING:
            if not stays_ignored(number):
                self._loop.add_signal_handler(number, self._signalled, number)
        started: list[Server] = []
        tasks = [self._loop.create_task(_tell_left_out())]
        try:
            for factory in factories:
                server = factory()
                started.append(server)
                await server.start()
            tasks.append(self._loop.create_task(_look_at(LongLived(), DescriptorReserve().spare)))
            # What was read to start is not needed any more: with 100,000 lite topics that is 20 MB.
            await asyncio.to_thread(trim)
            _say(announce(), sys.stdout)
            await self._ended.wait()
        finally:
            await self._stop(started)
            for task in tasks:
                task.cancel()
            peer_lines.finish()
        if isinstance(self._failure, RestartNeeded):
            # The process keeps its id, so its supervisor sees no end.
            logger.warning("event=restart reason=%r", str(self._failure))
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        if self._failure is not None:
            raise self._failure
        return exit_codes.SUCCESS

    def _signalled(self, number: int) -> None:
        logger.info("event=signal name=%s", signal.Signals(number).name)
        if self._ended is not None:
            self._ended.set()
        # A terminal that closes, and systemd with SendSIGHUP, also send SIGHUP: it is no second request.
        if number == signal.SIGHUP:
            return
        if self._is_asked:
            # The second request to stop: do not wait for the stop.
            os._exit(128 + number)
        self._is_asked = True

    async def _stop(self, started: list[Server]) -> None:
        for server in reversed(started):
            try:
                await server.stop()
            except (SprocketError, OSError) as error:
                self._failure = self._failure or _as_sprocket_error(error)


async def _tell_left_out() -> None:
    """Tell how many lines of peers were left out, also if no further line comes."""
    while True:
        await asyncio.sleep(_LEFT_OUT_S)
        peer_lines.flush()


async def _look_at(objects: LongLived, spare: int) -> None:
    while True:
        await asyncio.sleep(_LONG_LIVED_S)
        objects.look()
        spare_descriptors.keep(spare)


def _say(line: str, stream: TextIO) -> None:
    """Print a line; do nothing if it cannot be written: the pipe is closed, as after a restart, or its disk is full."""
    try:
        print(line, file=stream, flush=True)
    except OSError:
        # The buffer still holds the line: its flush at exit would fail again.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit.

    A broker needs thousands: one for each file of its log and queues, and one for each connection.  Shells set a soft
    limit of 1,024 for programs that use select(2), which these servers do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("event=open_files_limit_kept limit=%d wanted=%d reason=%r", soft, hard, str(error))


def exit_status(error: Exception) -> int:
    """Return the exit status for `error`."""
    if isinstance(error, InvariantError):
        return exit_codes.INVARIANT
    if isinstance(error, StoreError):
        return exit_codes.DISK
    # Other errors at a start are the operator's to fix: a wrong value, a port in use, a folder that is not writable.
    return exit_codes.USAGE if isinstance(error, ConfigError | OSError) else exit_codes.FAILURE


def _as_sprocket_error(error: Exception) -> SprocketError:
    return error if isinstance(error, SprocketError) else StoreError(str(error))


def log_to_stderr(level: str) -> None:
    """Write log lines of `key=value` to stderr: time in UTC, control characters escaped."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(timed_formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
