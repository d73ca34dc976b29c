"""Base of the blocking classes: it opens, closes and calls an asyncio object in the thread of the shared loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from sprocket.client.connection.event_loop_thread import shared_loop

T = TypeVar("T")
M = TypeVar("M")
P = ParamSpec("P")


class Opened(Protocol):
    """Asynchronous context manager."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=Opened)


def made_from(kind: Callable[P, C]) -> Callable[[Callable[[Any, C], None]], Callable[Concatenate[Any, P], None]]:
    """Return a decorator of `__init__(self, aio)`: the class takes the arguments of `kind`, the class of `aio`."""

    def decorate(init: Callable[[Any, C], None]) -> Callable[Concatenate[Any, P], None]:
        @wraps(kind.__init__)
        def made(self: Any, /, *words: P.args, **options: P.kwargs) -> None:
            init(self, kind(*words, **options))

        return made

    return decorate


class Blocking(Generic[C]):
    """Blocking form of the asyncio object `aio`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in vars(cls).items():
            if hasattr(method, "__wrapped__"):  # for `help`: it is a method of this class
                method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"

    def __init__(self, aio: C, *, is_owned: bool = False) -> None:
        """An owned object is part of a `Connection`, which keeps the loop running."""
        self._aio = aio
        self._is_open = False
        self._is_owned = is_owned

    @classmethod
    def _part(cls, aio: C) -> Self:
        """Return the blocking form of a part of a connection."""
        part = cls.__new__(cls)
        Blocking.__init__(part, aio, is_owned=True)
        return part

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Open the asyncio object.  Raises as its `start`."""
        if self._is_owned:
            shared_loop.call(_entered(self._aio))
            return
        shared_loop.acquire()
        try:
            shared_loop.call(_entered(self._aio))
        except BaseException:
            shared_loop.release()
            raise
        self._is_open = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(exc_type, exc, traceback)

    def close(self) -> None:
        """Close the asyncio object; a second call does nothing."""
        self._end(None, None, None)

    def _end(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_owned:
            shared_loop.call(self._aio.__aexit__(exc_type, exc, traceback))
        elif self._is_open:
            self._is_open = False
            try:
                shared_loop.call(self._aio.__aexit__(exc_type, exc, traceback))
            finally:
                shared_loop.release()

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return shared_loop.call(work)


B = TypeVar("B", bound=Blocking[Any])


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking form of a method of an asyncio class; it has the same arguments."""

    @wraps(method)
    def call(self: Any, /, *words: P.args, **options: P.kwargs) -> T:
        done: T = shared_loop.call(getattr(self._aio, method.__name__)(*words, **options))
        return done

    return call


def called_in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls `method`, which does not wait, in the thread of the loop."""

    @wraps(method)
    def call(self: Any, /, *words: P.args, **options: P.kwargs) -> T:
        done: T = shared_loop.call(in_loop(lambda: getattr(self._aio, method.__name__)(*words, **options)))
        return done

    return call


def part(method: Callable[Concatenate[Any, P], object], kind: type[B]) -> Callable[Concatenate[Any, P], B]:
    """Return a method that makes a part of a connection as `method`, in its blocking form, of class `kind`."""

    @wraps(method)
    def made(self: Any, /, *words: P.args, **options: P.kwargs) -> B:
        return kind._part(getattr(self._aio, method.__name__)(*words, **options))

    made.__annotations__ = made.__annotations__ | {"return": kind}
    made.__signature__ = signature(method).replace(return_annotation=kind)  # type: ignore[attr-defined]
    return made


async def _entered(aio: Opened) -> None:
    await aio.__aenter__()


async def in_loop(what: Callable[[], T]) -> T:
    """Call `what` in the thread of the loop."""
    return what()


def iterate(messages: AsyncIterator[T]) -> Iterator[T]:
    """Yield what `messages` yields, which runs in the thread of the loop."""
    ended = object()

    async def following() -> T | object:
        return await anext(messages, ended)

    while (item := shared_loop.call(following())) is not ended:
        yield item  # type: ignore[misc]


@contextmanager
def in_threads(
    handler: Callable[[M], object], concurrency: int
) -> "Iterator[Callable[[M], Coroutine[object, object, None]]]":
    """Provide an asynchronous handler that calls `handler` in one of `concurrency` threads."""
    with ThreadPoolExecutor(concurrency, thread_name_prefix="sprocket-handler") as threads:

        async def handle(message: M) -> None:
            await asyncio.get_running_loop().run_in_executor(threads, handler, message)

        yield handle
