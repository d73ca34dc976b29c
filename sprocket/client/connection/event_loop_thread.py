"""Event loop in a background thread, for programs without a loop.  It ends with its last user."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from sprocket.client.errors import ClientClosed
from sprocket.common.errors import ClientError
from sprocket.common.event_loops import new_event_loop

T = TypeVar("T")

_NAME: Final = "sprocket-client"
# The end of the process waits no longer for the thread, which may run a handler.
_HALT_LIMIT_S: Final = 5.0


class EventLoopThread:
    """Loop thread that counts its users: it starts with the first and ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_halted = False
        self._under_way: set[Future[Any]] = set()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def acquire(self) -> None:
        """Add a user."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked process has the parent's fields but not its threads.
                self._users, self._loop, self._thread, self._pid = 0, None, None, os.getpid()
                self._under_way = set()
            if not self._users:
                self._start()
            self._users += 1

    def release(self) -> None:
        """Remove a user.  The last removal returns after the thread has ended, unless `halt` came first."""
        ending = None
        with self._lock:
            self._users -= 1
            if not self._users:
                ending = self._stop()
        # Not under the lock: a handler that the thread waits for may open a client in a new thread.
        if ending is not None and ending is not threading.current_thread():
            ending.join()

    def halt(self) -> None:
        """Let the thread run nothing more, and end what waits for it; `call` raises ClientClosed from now on.

        Python may crash if a thread is in compiled code while its process ends.  Tasks are not cancelled: they would
        log that their client is lost.
        """
        with self._lock:
            loop = self._loop if self._pid == os.getpid() and self.is_running else None
            self._is_halted = loop is not None
        if loop is not None:
            is_halted = threading.Event()
            loop.call_soon_threadsafe(_halt, is_halted)
            is_halted.wait(_HALT_LIMIT_S)
            for future in list(self._under_way):
                future.cancel()

    def _start(self) -> None:
        loop = self._loop = new_event_loop()
        self._is_halted = False
        self._thread = threading.Thread(target=_run, args=(loop,), name=_NAME, daemon=True)
        self._thread.start()

    def _stop(self) -> threading.Thread | None:
        """Ask the loop to end.  Return the thread to wait for; None if it never ends or is not of this process."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or self._is_halted or self._pid != os.getpid():
            return None
        loop.call_soon_threadsafe(loop.stop)
        return thread

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop.  Raises ClientError outside `acquire` and `release`, ClientClosed after `halt`."""
        loop = self._loop
        if loop is None or self._pid != os.getpid():
            raise ClientError("the client is not open; use it inside `with`")
        if self._is_halted:
            raise ClientClosed(
                "the client is closed, because the process ends; close it in a function that you give to "
                "atexit.register after importing sprocket"
            )
        return loop

    def submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        """Start `work`.  Raises ClientError outside `acquire` and `release`, ClientClosed after `halt`."""
        try:
            loop = self._open_loop()
        except ClientError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if self._is_halted:
            future.cancel()  # the loop may not reach it
        return future

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Return the outcome of `work`; an interrupt of the caller, such as Ctrl-C, cancels it.

        Raises what `work` raises; ClientError when the caller is the thread of the loop itself; ClientClosed when the
        last client is closed meanwhile, and while the process ends.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("a blocking call from the client's own event loop would wait for itself")
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def soon(self, what: Callable[..., object], *arguments: object) -> None:
        """Call `what` in the loop without waiting for it.  Raises as `submit`."""
        self._open_loop().call_soon_threadsafe(what, *arguments)


def _halt(is_halted: threading.Event) -> None:
    is_halted.set()
    # For ever: the thread is a daemon.
    threading.Event().wait()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


# The clients of a process share this one.
shared_loop: Final = EventLoopThread()
atexit.register(shared_loop.halt)
