"""One process: an asyncio event loop in virtual time, which can be paused and killed at any event.

The project's asyncio code runs in it unchanged.  `asyncio.get_running_loop` is the process whose event runs.
"""

import asyncio
import contextlib
import inspect
import traceback
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.sim.cluster.scheduler import Event, Scheduler

if TYPE_CHECKING:
    from tests.sim.cluster.network import Network

T = TypeVar("T")


def _close(coroutine: "CoroutineType[Any, Any, Any]") -> None:
    """End a coroutine, and those that it was given if it never began: Python warns of one that nobody awaits."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        for given in coroutine.cr_frame.f_locals.values():
            if isinstance(given, CoroutineType):
                given.close()
    with contextlib.suppress(Exception):
        coroutine.close()


class Process:
    """The loop of one process on the machine of address `ip`: the part of asyncio's that the project uses."""

    def __init__(self, name: str, ip: str, scheduler: Scheduler, network: "Network") -> None:
        self.name = name
        self.ip = ip
        self.is_alive = True
        self.is_paused = False
        self.scheduler = scheduler
        self._network = network
        self._held: list[Event] = []
        self._tasks: list[asyncio.Task[Any]] = []

    # Life

    def run(self, event: Event) -> None:
        callback = event.callback
        assert callback is not None
        events._set_running_loop(cast(Any, self))
        try:
            if event.context is None:
                callback(*event.args)
            else:
                event.context.run(callback, *event.args)
        except Exception:
            self.scheduler.errors.append(f"{self.name}: {traceback.format_exc()}")
        finally:
            events._set_running_loop(None)

    def hold(self, event: Event) -> None:
        self._held.append(event)

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def go_on(self) -> None:
        """SIGCONT: what came due meanwhile happens now, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for event in held:
            event.time = self.scheduler.now
            self.scheduler.push(event)

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        self.is_alive = False
        self._held.clear()
        events._set_running_loop(cast(Any, self))
        try:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # killed is not forgotten
                if not task.done():
                    _close(cast("CoroutineType[Any, Any, Any]", task.get_coro()))
        finally:
            events._set_running_loop(None)
        self._tasks.clear()

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        event = self.scheduler.at(self.scheduler.now, self, callback, *args)
        event.context = context
        return event

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        event = self.scheduler.at(self.scheduler.now + max(0.0, delay), self, callback, *args)
        event.context = context
        return event

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        event = self.scheduler.at(when, self, callback, *args)
        event.context = context
        return event

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=cast(Any, self))

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: Any = None, context: Any = None
    ) -> "asyncio.Task[T]":
        coroutine, loop = cast(Coroutine[Any, Any, T], coro), cast(Any, self)
        task: asyncio.Task[T] = asyncio.Task(coroutine, loop=loop, name=name, context=context)
        if len(self._tasks) > 64:
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """In this thread: nothing else runs meanwhile."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.is_alive

    def is_closed(self) -> bool:
        return not self.is_alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_alive:
            error = context.get("exception")
            words = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else str(context)
            self.scheduler.errors.append(f"{self.name}: {words}")

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        future = self.create_future()
        self._network.connect(self, host, port, protocol_factory, future)
        return cast(tuple[asyncio.Transport, asyncio.BaseProtocol], await future)

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        start_serving: bool = True,
        **_: Any,
    ) -> Any:
        server = self._network.bind(self, port, protocol_factory)
        if start_serving:
            await server.start_serving()
        return server
