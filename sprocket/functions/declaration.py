"""Declaration of a function: its topics, its types, and how its failures are treated."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from sprocket.client import arguments
from sprocket.client.errors import IllegalArgument
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.typed.serializers import Serializer, serializer_of
from sprocket.functions.windows import Tumbling

Handler = Callable[..., Awaitable[Any]]
_CHANGELOG_SUFFIX: Final = "-changelog"
_declared: Final[ContextVar[list["Function"] | None]] = ContextVar("declared", default=None)


@dataclass(frozen=True, kw_only=True)
class Retries:
    """Tries of an input after the first one failed; `pause_s` is the first pause, each further one is twice as long."""

    times: int = 3
    pause_s: float = 0.5
    timeout_s: float = 60.0  # of one try

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.whole("times", self.times, 0)
        arguments.seconds("pause_s", self.pause_s)
        arguments.timeout("timeout_s", self.timeout_s)


@dataclass(eq=False)
class Function:
    """A handler and its declaration; calling it calls the handler.  Made by `function`."""

    handler: Handler
    inputs: Mapping[str, Serializer[Any]]
    output: str | None
    group: str
    state: Serializer[Any] | None
    time: Callable[[Any], int] | None
    window: Tumbling | None
    consume_from: ConsumeFrom
    retries: Retries
    expiry: Handler | None = None

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.handler.__name__

    @property
    def changelog(self) -> str:
        """Name of the compacted topic with positions, state and outputs."""
        return self.group + _CHANGELOG_SUFFIX

    def __call__(self, *arguments: Any, **keywords: Any) -> Awaitable[Any]:
        return self.handler(*arguments, **keywords)

    def on_expiry(self, handler: Handler) -> Handler:
        """Declare ``async def handler(key, value, ctx)``, which is called once for each value whose time is over.

        The value is deleted afterwards.  What the handler returns is sent to `output`.  With windows it is called when
        a window closes, for each key of the window.
        """
        if self.state is None:
            raise IllegalArgument(f"{self.name} has no state that could expire: declare its type, @function(state=...)")
        _check_handler(handler, "key", "value", "ctx")
        self.expiry = handler
        return handler


def function(
    *,
    input: str | Mapping[str, Any],
    group: str,
    output: str | None = None,
    state: Any = None,
    time: Callable[[Any], int] | None = None,
    window: Tumbling | None = None,
    consume_from: ConsumeFrom = ConsumeFrom.FIRST,
    retries: Retries | None = None,
) -> Callable[[Handler], Function]:
    """Declare an ``async def handler(value, ctx)`` as a function::

        @function(input="Orders", output="Invoices", group="billing", state=Account)
        async def bill(order: Order, ctx: Context[Account]) -> Invoice | None: ...

    `input` is one topic, whose type is the annotation of the handler's first parameter (bytes without one), or maps
    each topic to its type; then their queues of the same broker and number are read together, which joins them by key.
    What the handler returns, unless it is None, is sent to `output`, with the input's key.
    `state` is the type of the values in `ctx.state`.  `time` returns an input's event time, ms since the epoch; without
    it that is the time when the message was born.  With `window`, `ctx.state` is that of the input's window.
    `consume_from` says where a new group begins.
    `group` names the function in the cluster: its consumer group, and its changelog.  Raises IllegalArgument.
    """
    arguments.choice("input", input, (str, Mapping), "pass the name of a topic, or a map of topics to types")
    arguments.check_group(group)
    arguments.check_topic(group + _CHANGELOG_SUFFIX)
    if output is not None:
        arguments.check_topic(output)
    arguments.optional("window", window, Tumbling)
    arguments.optional("retries", retries, Retries)
    arguments.choice("consume_from", consume_from, ConsumeFrom, "pass ConsumeFrom.FIRST or ConsumeFrom.LAST")
    if time is not None and not callable(time):
        raise IllegalArgument(f"time is {time!r}; pass a function that returns the event time of an input, in ms")
    if window is not None and state is None:
        raise IllegalArgument(f"function of group {group}: a window needs state=, the type of its values")

    def declare(handler: Handler) -> Function:
        _check_handler(handler, "value", "ctx")
        kinds = input if isinstance(input, Mapping) else {input: _first_annotation(handler)}
        if not kinds:
            raise IllegalArgument(f"{handler.__name__} has no input: name a topic, or map topics to their types")
        for topic in kinds:
            arguments.check_topic(topic)
        serializers = {topic: _serializer(f"the type of {topic}", kind) for topic, kind in kinds.items()}
        kept = None if state is None else _serializer("state", state)
        made = Function(handler, serializers, output, group, kept, time, window, consume_from, retries or Retries())
        if (gathering := _declared.get()) is not None:
            gathering.append(made)
        return made

    return declare


@contextmanager
def gathered() -> Iterator[list[Function]]:
    """Gather the functions that are declared meanwhile."""
    found: list[Function] = []
    token = _declared.set(found)
    try:
        yield found
    finally:
        _declared.reset(token)


def _serializer(name: str, kind: Any) -> Serializer[Any]:
    try:
        return serializer_of(kind)
    except IllegalArgument:
        allowed = "a dataclass, a msgspec struct, a pydantic model, or a type of JSON such as str, int, dict[str, int]"
        raise IllegalArgument(f"{name} is {kind!r}; pass bytes, {allowed}") from None


def _check_handler(handler: Handler, *parameters: str) -> None:
    """Raises IllegalArgument unless `handler` is an ``async def`` that can be called with `parameters`."""
    if not inspect.iscoroutinefunction(handler):
        raise IllegalArgument(f"{handler!r} is no `async def` function; write `async def`")
    signature = inspect.signature(handler)
    try:
        signature.bind(*parameters)
    except TypeError:
        count = len(signature.parameters)
        raise IllegalArgument(f"{handler.__name__} has {count} parameters; write ({', '.join(parameters)})") from None


def _first_annotation(handler: Handler) -> Any:
    name = next(iter(inspect.signature(handler).parameters))
    return get_type_hints(handler).get(name, bytes)
