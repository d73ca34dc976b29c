"""Supervisor of a proxy of several processes, and the line between them.

Each worker binds the same ports with SO_REUSEPORT, so the system spreads connections over them.  A worker that ends is
started again, after a pause that grows while it keeps ending.  Workers end with their supervisor.
An edge file: it starts processes and talks to them through sockets.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.server.reserved_port import ReservedPort
from proxy.workers.link import MAX_LINE_BYTES, MAX_WAITING_BYTES, encoded
from sprocket.client.connection.wakeup import pause
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

_START_LIMIT_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 10.0
# A worker that ran for this time starts again without a long pause.
_STEADY_S: Final = 30.0
_BY_SIGNAL: Final = "signal "

# The command of a worker: its number, the descriptor of its line, and the ports.
Command = Callable[[int, int, Sequence[int]], Sequence[str]]


class WorkerNotStarted(SprocketError):
    """A worker ended before it was ready; its log says why."""


@dataclass
class _Worker:
    """One worker process."""

    number: int
    process: asyncio.subprocess.Process
    writer: asyncio.StreamWriter
    started_at: float
    relay: "asyncio.Task[None] | None" = None
    facts: dict[str, Any] = field(default_factory=dict)


class ProxyWorkers:
    """`count` workers of one proxy at `ports` of `host`; `command` makes the command of each.

    They have `stop_limit_s` to stop.
    """

    def __init__(
        self, command: Command, count: int, host: str, ports: Sequence[int], clock: Clock, stop_limit_s: float
    ) -> None:
        self._command = command
        self._host = host
        self._wanted = ports
        self._reserved: list[ReservedPort] = []
        self._count = count
        self._clock = clock
        self._stop_limit_s = stop_limit_s
        self._workers: dict[int, _Worker] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._is_stopping = False

    @property
    def facts(self) -> dict[str, Any]:
        """Start line of the first worker, with the number of processes, and whether all serve."""
        workers = sorted(self._workers.values(), key=lambda one: one.number)
        serving = all(worker.facts["serving"] for worker in workers)
        pids = [worker.process.pid for worker in workers]
        return {**workers[0].facts, "serving": serving, "processes": self._count, "pids": pids}

    async def start(self) -> None:
        """Start every worker and wait until all are ready.  Raises ConfigError and WorkerNotStarted."""
        self._reserved = [ReservedPort(self._host, port) for port in self._wanted]
        await asyncio.gather(*(self._start(number) for number in range(self._count)))
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(self._keep(number)) for number in range(self._count)]

    async def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_LINE_BYTES)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command(number, theirs.fileno(), [port.number for port in self._reserved]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
            )
        worker = _Worker(number, process, writer, self._clock.monotonic())
        self._workers[number] = worker
        worker.relay = asyncio.get_running_loop().create_task(self._relay(worker, reader))
        assert process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_LIMIT_S):
                line = await process.stdout.readline()
        if not line:
            raise WorkerNotStarted(f"worker {number} of the proxy did not start: its log says why")
        worker.facts = json.loads(line)
        self._pass_on(worker, {"kind": "joined", "to": None})

    async def _keep(self, number: int) -> None:
        """Start a worker again whenever it ends."""
        pause_s = _FIRST_PAUSE_S
        while True:
            worker = self._workers[number]
            status = await worker.process.wait()
            worker.writer.close()
            if self._is_stopping:
                return
            if self._clock.monotonic() - worker.started_at > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            logger.error(
                "event=proxy_worker_ended number=%d pid=%d status=%s again_after_s=%.1f",
                number, worker.process.pid, _text(status), pause_s,
            )  # fmt: skip
            await pause(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)
            try:
                await self._start(number)
            except (WorkerNotStarted, OSError, ValueError) as error:
                logger.error("event=proxy_worker_not_started number=%d reason=%r", number, str(error))
            else:
                logger.info("event=proxy_worker_started number=%d pid=%d", number, self._workers[number].process.pid)

    # Messages between workers

    async def _relay(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self._pass_on(worker, json.loads(line))

    def _pass_on(self, sender: _Worker, message: dict[str, Any]) -> None:
        wanted = message.get("to")
        line = encoded({**message, "from": sender.number})
        for worker in self._workers.values():
            if worker is sender or wanted not in (None, worker.number) or worker.writer.is_closing():
                continue
            if worker.writer.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
                peer_lines.warning(
                    logger, "", "event=worker_message_dropped number=%d kind=%s", worker.number, message["kind"]
                )
                continue
            worker.writer.write(line)

    # Stop

    async def stop(self) -> None:
        """Ask every worker to stop, wait, and kill those that do not."""
        self._is_stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        workers = list(self._workers.values())
        for worker in workers:
            _send(worker, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_limit_s):
                await asyncio.gather(*(worker.process.wait() for worker in workers))
        for worker in workers:
            if worker.process.returncode is None:
                logger.error("event=proxy_worker_killed number=%d pid=%d", worker.number, worker.process.pid)
                _send(worker, signal.SIGKILL)
                await worker.process.wait()
            worker.writer.close()
            if worker.relay is not None:
                worker.relay.cancel()
        for port in self._reserved:
            port.close()


def _send(worker: _Worker, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.process.send_signal(number)


def _text(status: int) -> str:
    return f"{_BY_SIGNAL}{-status}" if status < 0 else str(status)
