"""Compiled start of usual sends: one call from the message to its request in the output of a connection.

It does what `Producer` and `Sender.start` do for a plain message to the next queue, if the way to each queue of the
topic is known.  Any other message takes the Python path, in its place among the others.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.message import Message
from sprocket.client.send.attempt import Attempt
from sprocket.client.send.send_header import SendHeader
from sprocket.client.send.send_request import SendSettings, request_preparer
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.channel import RemotingChannel

# The compiled engine, None with pure Python.
ENGINE: Final = native("sprocket.client.send.sends_native")
# A message and the time for its attempt, s; None: the Python path must start it, and nothing was done.
CompiledStart = Callable[[Message, float], Attempt | None]


class CompiledStarts:
    """Start of the usual sends of one sender; `start` is None while no way is known."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: SendSettings,
        avoided: dict[str, tuple[float, float]],
        positions: dict[str, int],
        engine: Any = ENGINE,
    ) -> None:
        """`avoided` are the brokers to avoid, `positions` those of the next queues; both are the sender's own."""
        self.start: CompiledStart | None = None
        self._instance = instance
        self._avoided = avoided
        self._positions = positions
        self._engine = engine
        self._preparer = request_preparer(settings, engine)
        self._starter: Any = None  # made when the instance is open

    @property
    def is_possible(self) -> bool:
        """Whether there is a compiled engine for these settings."""
        return self._preparer is not None

    def keep(self, topic: str, ways: Iterable[tuple[MessageQueue, SendHeader, RemotingChannel | None]]) -> None:
        """Start further messages of `topic` here, if all `ways` are open; they have the order of sends."""
        opened = []
        for queue, header, channel in ways:
            if channel is None or channel.is_closed or channel.is_signing:
                return
            opened.append((queue, header.encoder, channel))
        if self._starter is None:
            new_id = self._instance.identity.new_unique_id
            self._starter = self._engine.Starter(
                self._preparer, Attempt, self._instance, new_id, self._avoided, self._positions
            )
        self._starter.keep(topic, self._instance.route_changes, opened)
        self.start = self._starter.start

    def forget(self) -> None:
        """Start no message here until `keep` is called."""
        self.start = None
        if self._starter is not None:
            self._starter.forget()
