"""The blocking consumer of lite topics, and sessions."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from sprocket.client import arguments, session
from sprocket.client import lite_consumer as aio_lite
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.lite.start import LiteStart
from sprocket.client.lite_consumer import Lost
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.sync.blocking import Blocking, blocking, iterate
from sprocket.client.sync.message import BlockingMessage
from sprocket.client.sync.simple_consumer import Popped, Popping
from sprocket.client.trace.recorder import TraceSettings


def in_thread(on_lost: Lost | None) -> Lost | None:
    """Return a function for the event loop that calls `on_lost` in a thread, because it may block."""
    if on_lost is None:
        return None
    arguments.handler("on_lost", on_lost, "the name of a lite topic")
    return lambda name: asyncio.get_running_loop().run_in_executor(None, on_lost, name)


class LiteConsumer(Popping[aio_lite.LiteConsumer]):
    """Consumes lite topics of one parent topic, each in order; `on_lost` is called in a thread."""

    subscribe = blocking(aio_lite.LiteConsumer.subscribe)
    unsubscribe = blocking(aio_lite.LiteConsumer.unsubscribe)

    def __init__(
        self,
        group: str,
        topic: str,
        lite_topics: Iterable[str] | str = (),
        namesrv: str | Sequence[str] = "",
        *,
        start: LiteStart | None = None,
        on_lost: Lost | None = None,
        settings: PopSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(
            aio_lite.LiteConsumer(
                group, topic, lite_topics, namesrv, start=start, on_lost=in_thread(on_lost), settings=settings,
                client=client, trace=trace,
            )
        )  # fmt: skip

    @property
    def lite_topics(self) -> tuple[str, ...]:
        """The subscribed lite topics, in the order in which they were subscribed."""
        return self._aio.lite_topics


class Session(Blocking[session.Session]):
    """Ordered channel; an iterator, to be used with `with`.  One thread iterates at a time.

    The last message is acknowledged when the context ends without an error, as in `sprocket.Session`.
    """

    send = blocking(session.Session.send)

    def __repr__(self) -> str:
        return repr(self._aio)

    @property
    def id(self) -> str:
        """The name of the session."""
        return self._aio.id

    @property
    def topic(self) -> str:
        """The parent topic."""
        return self._aio.topic

    @property
    def group(self) -> str:
        """The group that it reads in."""
        return self._aio.group

    @property
    def peer(self) -> str | None:
        """The session that it sends to, None for itself."""
        return self._aio.peer

    def receive(self, *, wait_s: timedelta | float | None = None) -> Popped | None:
        """Return the next message; None if there is none for `wait_s`, or the session closes."""
        popped = self._call(self._aio.receive(wait_s=wait_s))
        return None if popped is None else BlockingMessage(popped)

    def __iter__(self) -> Iterator[Popped]:
        for popped in iterate(self._aio):
            yield BlockingMessage(popped)
