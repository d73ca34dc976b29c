"""Getting a broker to each failpoint and letting it die there.

Most points are reached by a broker that serves.  Points of the start need a store that a kill left; points of the
stop need a stop; a few need something done to the disk before.
"""

import asyncio
import importlib
import pkgutil
import random
import shutil
import signal
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import broker as broker_package
import ha
import sprocket.common
import store
from sprocket.common import failpoints
from sprocket.remoting.bodies.schedule import Schedule
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.schedule import SetScheduleRequestHeader
from tests.chaos.load import Load, Refused, beside, create_topic
from tests.chaos.nursery import ChaosBroker

SCHEDULED: Final = "Scheduled"
_SERVE_LIMIT_S: Final = 5.0
_TRIES: Final = 8
_SERVING_TRIES: Final = 2


class Scene(Enum):
    """What the broker does when it dies."""

    SERVING = auto()
    # A start after a kill under load.
    STARTING = auto()
    # The same with a queue's file gone, so that all queues are rebuilt.
    REBUILDING = auto()
    # The same with the timer wheel's file gone, so that it is rebuilt.
    WHEEL_LOST = auto()
    # The same with half a record after the log's last one.
    TORN = auto()
    # The same with an empty last segment.
    HALF_CREATED = auto()
    # A write meets a full disk.
    DISK_FULL = auto()
    STOPPING = auto()
    # Retention removes segments while it serves; on a store of its own.
    CLEANING = auto()
    # A slave takes its master's log: not of these rounds, see `tests/chaos/replication/test_slave_kills.py`.
    FOLLOWING = auto()


@dataclass(frozen=True)
class Way:
    """How to reach a point: the scene, and the how manieth time it is reached there."""

    scene: Scene
    times: int = 1


# By the longest prefix of the name; what is not here is reached by serving.
WAYS: Final = {
    "": Way(Scene.SERVING),
    "appender.queues_rolled_back": Way(Scene.DISK_FULL),
    "cleaner.": Way(Scene.CLEANING),
    "commit_log.before_erase": Way(Scene.DISK_FULL),
    "bookkeeping.abort_written": Way(Scene.STARTING),
    "bookkeeping.files_loaded": Way(Scene.STARTING),
    "commit_log.cut": Way(Scene.STARTING),
    # The first ones are reached by the start; these are meant in service.
    "disk.create": Way(Scene.SERVING, 8),
    "disk.created": Way(Scene.SERVING, 8),
    "disk.remove": Way(Scene.STARTING),
    "disk.small_written": Way(Scene.SERVING, 4),
    "disk.sync": Way(Scene.SERVING, 20),
    "disk.write": Way(Scene.SERVING, 50),
    "disk.write_small": Way(Scene.SERVING, 4),
    "file_allocator.discarded": Way(Scene.STOPPING),
    "mapped_file_queue.cut_between_files": Way(Scene.STARTING),
    "mapped_file_queue.half_created": Way(Scene.HALF_CREATED),
    "message_store.locked": Way(Scene.STARTING),
    "message_store.recovered": Way(Scene.STARTING),
    "message_store.stop": Way(Scene.STOPPING),
    "recovery.": Way(Scene.STARTING),
    "recovery.queues_destroyed": Way(Scene.REBUILDING),
    "replica_log.": Way(Scene.FOLLOWING),
    "redispatch.": Way(Scene.STARTING),
    "timer_message_store.rebuild_noted": Way(Scene.WHEEL_LOST),
    "truncation.": Way(Scene.TORN),
    "server.start": Way(Scene.STARTING),
    "server.stop": Way(Scene.STOPPING),
}


def points() -> list[str]:
    """Every failpoint that a broker has."""
    for package in (sprocket.common, store, ha, broker_package):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return sorted(name for name in failpoints.declared() if not name.startswith(("test_", "backup.", "outbox.")))


def way_to(point: str) -> Way:
    """How `point` is reached."""
    return WAYS[max((prefix for prefix in WAYS if point.startswith(prefix)), key=len)]


class NotReached(Exception):
    """The broker did not come by the point."""


class FailpointRounds:
    """One store that lives through one death after another; it is down between the rounds."""

    def __init__(self, broker: ChaosBroker, load: Load, dice: random.Random) -> None:
        self._broker = broker
        self._load = load
        self._dice = dice
        self._is_prepared = False

    async def die_at(self, point: str, times: int | None = None) -> list[str]:
        """Let the broker die at `point`, start it again, and return what is wrong then.

        `times` is the how manieth time it dies; None takes that of the point's way.  Raises NotReached.
        """
        way = way_to(point)
        await self._prepare()
        for attempt in range(_SERVING_TRIES if way.scene in (Scene.SERVING, Scene.CLEANING) else _TRIES):
            clause = f"{point}=kill@{way.times if times is None else times}"
            if await self._act(way.scene, clause, attempt) == -signal.SIGKILL and self._was_reached(point):
                return await self._verdict()
            times = None
        raise NotReached(f"{point} by {way.scene.name}")

    def end(self) -> None:
        """Let nothing run, whatever went wrong."""
        if self._broker.pid:
            self._broker.kill()

    async def _prepare(self) -> None:
        if not self._is_prepared:
            self._broker.start()
            await self._load.prepare(self._broker.address)
            await set_schedule(self._broker.address)
            self._broker.kill()
            self._is_prepared = True

    async def _verdict(self) -> list[str]:
        self._broker.start()
        try:
            return await self._load.problems(self._broker.address)
        finally:
            self._broker.kill()

    def _was_reached(self, point: str) -> bool:
        last = self._broker.log_tail().rstrip().rpartition("\n")[2]
        return last == f"event=failpoint name={point} action=kill"

    async def _act(self, scene: Scene, clause: str, attempt: int) -> int:
        """Let the broker live and die in one scene; its exit status."""
        match scene:
            case Scene.SERVING | Scene.CLEANING:
                return await self._serve(clause)
            case Scene.DISK_FULL:
                return await self._serve(f"disk.write=error:ENOSPC@{20 + 3 * attempt};{clause}")
            case Scene.STOPPING:
                return await self._stop(clause)
        if scene is Scene.HALF_CREATED:
            # One of the files that are made while it serves is a segment.
            await self._serve(f"disk.before_allocate=kill@{6 + attempt}")
        else:
            await self._serve("", 0.15)
        if scene is Scene.REBUILDING:
            self._remove_a_queue()
        if scene is Scene.WHEEL_LOST:
            (self._broker.store / "timerwheel").unlink(missing_ok=True)
        if scene is Scene.TORN:
            self._tear_log()
        self._broker.launch(clause)
        if self._broker.await_serving():
            return self._broker.kill() and 0  # it came by alive
        return self._broker.wait()

    async def _serve(self, clause: str, limit_s: float = _SERVE_LIMIT_S) -> int:
        """Serve under load until it ends, or is ended after `limit_s`."""
        broker = self._broker
        broker.launch(clause)
        if not broker.await_serving():
            return broker.wait()
        statuses: list[int] = []

        async def end() -> None:
            if await asyncio.to_thread(broker.has_ended, limit_s):
                statuses.append(broker.wait())
            else:
                broker.kill()
                statuses.append(0)

        try:
            await beside(end(), self._load.until_dead(broker.address))
        except Refused as refusal:
            if "error:ENOSPC" not in clause:
                raise
            assert "no space left" in refusal.remark.lower(), refusal  # the system's words, or the broker's
        return statuses[0]

    async def _stop(self, clause: str) -> int:
        broker = self._broker
        broker.start(clause)

        async def end() -> None:
            await asyncio.sleep(self._dice.uniform(0.1, 0.3))
            broker.signal(signal.SIGTERM)
            await asyncio.to_thread(broker.has_ended, _SERVE_LIMIT_S)

        await beside(end(), self._load.until_dead(broker.address))
        return broker.wait()

    def _tear_log(self) -> None:
        segments = sorted((self._broker.store / "commitlog").iterdir())
        written = [segment for segment in segments if any(segment.read_bytes()[:4])]
        end = len(written[-1].read_bytes().rstrip(b"\0"))
        with written[-1].open("r+b") as file:
            file.seek(min(end + 8, file.seek(0, 2) - 64))
            file.write(b"torn" * 16)

    def _remove_a_queue(self) -> None:
        queues = sorted((self._broker.store / "consumequeue" / "Chaos").iterdir())
        shutil.rmtree(self._dice.choice(queues))


async def set_schedule(address: str) -> None:
    """Let a schedule fire each second, as points about schedules need it."""
    client = RemotingClient()
    wanted = Schedule(name="each second", topic=SCHEDULED, body=b"0.", every_millis=1000)
    await create_topic(client, address, SCHEDULED, 1)
    header = SetScheduleRequestHeader(topic=SCHEDULED)
    await client.invoke(address, RequestCode.SET_SCHEDULE, header, dumps(wanted), timeout_s=30)
    await client.close()
