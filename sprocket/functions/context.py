"""What a handler gets beside its input: the state by key, the window, and sends that count when the input does."""

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from sprocket.client import arguments
from sprocket.client.errors import IllegalArgument
from sprocket.client.message import ReceivedMessage
from sprocket.client.typed.serializers import Serializer, serializer_of
from sprocket.functions.declaration import Function
from sprocket.functions.partition import Draft
from sprocket.functions.records import Entry, Output, message_of
from sprocket.functions.windows import MAX_TIME_MS, Window

S = TypeVar("S")
# Digits of a window's start in the key of an entry.
_START_DIGITS: Final = 15


def scoped(window: Window | None, key: str) -> str:
    """Return the key of an entry: with a window, its start comes first."""
    return key if window is None else f"{window.start_ms:0{_START_DIGITS}d}/{key}"


def unscoped(function: Function, key: str) -> tuple[Window | None, str]:
    """Return window and key of an entry, as `scoped` joined them."""
    if function.window is None:
        return None, key
    start, _, rest = key.partition("/")
    return function.window.starting_at(int(start)), rest


class State(Generic[S]):
    """Values by key, of this partition: keys that other queues' inputs put are not there."""

    def __init__(self, draft: Draft, serializer: Serializer[S] | None, window: Window | None) -> None:
        self._draft = draft
        self._serializer = serializer
        self._window = window

    def _codec(self) -> Serializer[S]:
        if self._serializer is None:
            raise IllegalArgument("the function has no state: declare the type of its values, @function(state=...)")
        return self._serializer

    def get(self, key: str) -> S | None:
        """Return the value of `key`, None without one; changes of the returned object count after `put` only."""
        codec = self._codec()
        entry = self._draft.get(scoped(self._window, key))
        return None if entry is None else codec.decode(entry.value)

    def put(self, key: str, value: S, *, expires_at_ms: int | None = None) -> None:
        """Set the value of `key`.  It is deleted when the watermark reaches `expires_at_ms`, or the window closes.

        Raises ValueError above the limits of one input.
        """
        if self._window is not None:
            if expires_at_ms is not None:
                raise IllegalArgument("a value in a window expires with it; leave expires_at_ms out")
            expires_at_ms = self._window.closes_at_ms
        elif expires_at_ms is not None:
            arguments.whole("expires_at_ms", expires_at_ms, -MAX_TIME_MS, MAX_TIME_MS)
        self._draft.put(Entry(scoped(self._window, key), self._codec().encode(value), expires_at_ms))

    def delete(self, key: str) -> None:
        """Delete `key`, if it is there."""
        self._draft.delete(scoped(self._window, key))


class Context(Generic[S]):
    """State and sends of one try of a handler; nothing of them counts unless the handler returns.

    `topic` and `key` are the input's: its sharding key, else its first key.  `time_ms` is its event time, and
    `watermark_ms` the latest event time before it.  `window` is None without windows.  `message` is the input itself,
    None when a value expires; then `time_ms` is the time of the expiry.
    """

    def __init__(
        self, function: Function, draft: Draft, topic: str, key: str, time_ms: int, watermark_ms: int,
        window: Window | None, message: ReceivedMessage | None,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.key = key
        self.time_ms = time_ms
        self.watermark_ms = watermark_ms
        self.window = window
        self.message = message
        self.state: State[S] = State(draft, function.state, window)
        self._draft = draft

    def send(
        self, topic: str, value: Any, *, key: str = "", tags: str = "", properties: Mapping[str, str] | None = None
    ) -> None:
        """Send `value` to `topic` when the input counts; messages of one `key` go to one queue, in order.

        Values are encoded by their type, as those of typed topics.  Raises ValueError above the limits of one input.
        """
        body: bytes = serializer_of(type(value)).encode(value)
        output = Output(topic, body, "", key, tags, dict(properties or {}))
        message_of(output)  # checks it
        self._draft.send(output)
