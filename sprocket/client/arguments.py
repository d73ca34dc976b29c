"""Checks of arguments: each error names the argument, the fault, and what to pass.

Every public class and function of the client uses these, so that an argument means the same everywhere: durations
are a timedelta or seconds, moments are a datetime with a time zone, one name may stand for a list of one.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar

from sprocket.client.errors import IllegalArgument, IllegalMessage
from sprocket.common import limits
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.client import split_address
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.lite_topics import is_legal_lite_topic
from sprocket.remoting.message.namespaces import namespace_problem
from sprocket.remoting.message.topic_names import NOT_ALLOWED_SEND_TOPICS

T = TypeVar("T")

# The default messageDelayLevel of brokers, s: 1s 5s 10s 30s 1m to 10m, 20m 30m 1h 2h
_LEVELS_S: Final = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
MAX_DELAY_LEVEL: Final = len(_LEVELS_S)
# Before addresses of proxies, which speak gRPC.
PROXY_SCHEME: Final = "grpc://"
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
# The year 2001 in ms: a smaller number is most likely a time in seconds.
_SMALLEST_EPOCH_MS: Final = 1_000_000_000_000
_Refusal = type[IllegalArgument]


def _one(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiouAEIO" else f"a {kind}"


def _kind(value: object) -> str:
    return "None" if value is None else _one(type(value).__name__)


# Plain values


def text(name: str, value: object, advice: str = "pass a str", error: _Refusal = IllegalArgument) -> str:
    """Return `value` if it is a str that UTF-8 can hold."""
    if not isinstance(value, str):
        raise error(f"{name} is {_kind(value)}; {advice}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as reason:
            raise error(f"{name} {value!r} is no Unicode text: {reason.reason}; leave such characters out") from None
    return value


def whole(name: str, value: object, low: int, high: int | None = None, error: _Refusal = IllegalArgument) -> int:
    """Return `value` if it is an int from `low` to `high`."""
    allowed = f"from {low} to {high}" if high is not None else f"from {low} on"
    if not isinstance(value, int) or isinstance(value, bool):
        raise error(f"{name} is {_kind(value)}; pass an int {allowed}")
    if value < low or (high is not None and value > high):
        raise error(f"{name} is {value}, but is {allowed}")
    return value


def choice(name: str, value: object, kind: type[T] | tuple[type[T], ...], advice: str) -> T:
    """Return `value` if it is a `kind`."""
    if not isinstance(value, kind):
        raise IllegalArgument(f"{name} is {_kind(value)}; {advice}")
    return value


def optional(name: str, value: T | None, kind: type[T]) -> T | None:
    """Return `value` if it is a `kind` or None."""
    if value is not None and not isinstance(value, kind):
        raise IllegalArgument(f"{name} is {_kind(value)}; pass {_one(kind.__name__)}, or leave it out")
    return value


def switch(name: str, value: object, error: _Refusal = IllegalArgument) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, bool):
        raise error(f"{name} is {_kind(value)}; pass True or False")
    return value


def suspend_s(name: str, value: object) -> float:
    """Return a pause of a queue, s: RocketMQ allows 10 ms to 30 s."""
    pause_s = seconds(name, value, low=0.01)
    if pause_s > 30:
        raise IllegalArgument(f"{name} is {pause_s:g} s; pass a duration from 0.01 s to 30 s")
    return pause_s


def function(name: str, value: T) -> T:
    """Return `value` if it can be called."""
    if not callable(value):
        raise IllegalArgument(f"{name} is {_kind(value)}; pass a function")
    return value


def handler(name: str, value: T, takes: str, count: int = 1) -> T:
    """Return `value` if it can be called with `count` arguments, which `takes` names."""
    function(name, value)
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]  # it can be called
    except (TypeError, ValueError):  # some functions of C have none
        return value
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise IllegalArgument(f"{name} has the parameters {signature}; pass a function that takes {takes}") from None
    return value


# Times


def seconds(name: str, value: object, *, low: float = 0.0, error: _Refusal = IllegalArgument) -> float:
    """Return a duration, a timedelta or seconds, as seconds; at least `low`."""
    if isinstance(value, timedelta):
        duration = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        duration = float(value)
    else:
        raise error(f"{name} is {_kind(value)}; pass a timedelta or seconds")
    if not math.isfinite(duration) or duration < low:
        raise error(f"{name} is {duration:g} s; pass a duration of {low:g} s or more")
    return duration


def timeout(name: str, value: object) -> float:
    """Return a limit for something that needs time: seconds or a timedelta, above zero."""
    limit_s = seconds(name, value)
    if not limit_s:
        raise IllegalArgument(f"{name} is 0, and nothing is done in no time; pass a duration above 0 s")
    return limit_s


def timeout_or(name: str, value: object, default_s: float) -> float:
    """Return `timeout` in seconds, or `default_s` for None."""
    return default_s if value is None else timeout(name, value)


def wait_or(name: str, value: object, default_s: float | None) -> float | None:
    """Return how long to wait, s: 0 does not wait, None is `default_s`."""
    return default_s if value is None else seconds(name, value)


def delay_ms(name: str, value: object) -> int:
    """Return a message's delay, a timedelta or seconds, in ms."""
    return round(seconds(name, value, error=IllegalMessage) * 1000)


def moment_ms(name: str, value: object, error: _Refusal = IllegalArgument) -> int:
    """Return a moment, a datetime with a time zone or whole ms since the epoch, as ms since the epoch."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise error(
                f"{name} {value.isoformat()} has no time zone, so machines would disagree about it; "
                "pass datetime.now(UTC) + ..., or value.astimezone() for local time"
            )
        moment = round(value.timestamp() * 1000)
        if moment < 0:
            raise error(f"{name} {value.isoformat()} is before 1970; pass a later time")
        return moment
    if not isinstance(value, int) or isinstance(value, bool):
        raise error(f"{name} is {_kind(value)}; pass a datetime with a time zone, or ms since the epoch as an int")
    if value < _SMALLEST_EPOCH_MS:
        raise error(f"{name} is {value} ms since the epoch, before September 2001; multiply seconds by 1000")
    return value


# Names


@lru_cache(maxsize=4096)
def _legal_topic(topic: str) -> None:
    if not topic.strip():
        raise IllegalMessage("the topic is blank; pass a name of the characters % | a-z A-Z 0-9 _ -")
    if len(topic) > limits.MAX_TOPIC_CHARS:
        raise IllegalMessage(f"topic {topic!r} has {len(topic)} characters, at most {limits.MAX_TOPIC_CHARS}")
    if not _LEGAL_NAME.fullmatch(topic):
        raise IllegalMessage(f"topic {topic!r} has a character that is not allowed: only % | a-z A-Z 0-9 _ -")
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise IllegalMessage(f"topic {topic} belongs to the brokers; messages cannot be sent to it")


def check_topic(topic: object) -> None:
    """Raise IllegalMessage for a topic that messages cannot be sent to."""
    if type(topic) is not str:
        raise IllegalMessage(f"topic is {_kind(topic)}; pass the topic's name as a str")
    _legal_topic(topic)


def check_group(group: object) -> None:
    """Raise IllegalMessage for an invalid group name."""
    if not isinstance(group, str):
        raise IllegalMessage(f"group is {_kind(group)}; pass the group's name as a str")
    if not group.strip():
        raise IllegalMessage("the group is blank; pass a name of the characters % | a-z A-Z 0-9 _ -")
    if len(group) > limits.MAX_GROUP_CHARS:
        raise IllegalMessage(f"group {group!r} has {len(group)} characters, at most {limits.MAX_GROUP_CHARS}")
    if not _LEGAL_NAME.fullmatch(group):
        raise IllegalMessage(f"group {group!r} has a character that is not allowed: only % | a-z A-Z 0-9 _ -")


def lite_topic(name: str, value: object, error: _Refusal = IllegalArgument) -> str:
    """Return the name of a lite topic."""
    found = text(name, value, "pass the name of a lite topic as a str", error)
    if not is_legal_lite_topic(found):
        raise error(f"{name} {found[:300]!r} is no lite topic: its name has 1 to 240 of the characters a-z A-Z 0-9 _ -")
    return found


def names_of(name: str, value: object) -> list[str]:
    """Return a list of names, where a str is one name and not a list of characters."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray | memoryview):
        raise IllegalArgument(f"{name} is {_kind(value)}; pass a str, or a list of them")
    return [text(f"an entry of {name}", entry) for entry in value]


def addresses(name: str, value: str | Sequence[str]) -> list[str]:
    """Return addresses ``host:port`` of name servers, given as a str with ``;`` or ``,`` between them, or as a list.

    Raises IllegalArgument, also for the address of a proxy.
    """
    parts = servers(name, value)
    for part in parts:
        if part.startswith(PROXY_SCHEME):
            raise IllegalArgument(
                f"{name}: {part!r} is a proxy, and name servers are expected here; use sprocket.connect({part!r})"
            )
    return parts


def servers(name: str, value: str | Sequence[str]) -> list[str]:
    """Return addresses of name servers, ``host:port``, or of proxies, ``grpc://host:port``.  Raises IllegalArgument."""
    listed = [value] if isinstance(value, str) else names_of(name, value)
    parts = [part.strip() for entry in listed for part in re.split("[;,]", entry) if part.strip()]
    if not parts:
        raise IllegalArgument(f"no name server given: pass {name}='host:9876' or 'a:9876;b:9876', or set NAMESRV_ADDR")
    for part in parts:
        address = part.removeprefix(PROXY_SCHEME)
        if "://" in address:
            raise IllegalArgument(f"{name}: {part!r} has a scheme; pass 'host:9876', or 'grpc://host:8081' of a proxy")
        try:
            split_address(address)
        except ValueError as error:
            form = "'host:9876' or 'a:9876;b:9876'" if address == part else "'grpc://host:8081'"
            raise IllegalArgument(f"{name}: {error}; pass {form}") from None
    return parts


def namespace(name: str, value: object) -> str:
    """Return the name of a namespace, ``orders`` or ``shop|orders``; empty for none."""
    found = text(name, value, "pass a str, as in 'orders' or, with a tenant, 'shop|orders'")
    problem = namespace_problem(found) if found else None
    if problem is not None:
        raise IllegalArgument(f"{name}: {problem}")
    return found


def sharding_key(value: object, queue: object) -> None:
    """Raise IllegalArgument for a sharding key that is no str, or that is given together with a queue."""
    if value is None:
        return
    text("sharding_key", value, f"pass a str, as in str({value!r})")
    if queue is not None:
        raise IllegalArgument("queue and sharding_key both say where the message goes; pass one of them")


def queue_of(value: object, topic: str) -> None:
    """Raise IllegalArgument for a queue of another topic than `topic`."""
    if value is None:
        return
    queue = choice("queue", value, MessageQueue, "pass a MessageQueue, as Producer.queues(topic) lists them")
    if queue.topic != topic:
        raise IllegalArgument(f"queue is one of topic {queue.topic}, but the message is for {topic}; pass one of that")


def delay_level(value: object, *, low: int = 0, error: _Refusal = IllegalArgument) -> int:
    """Return a level of the broker's messageDelayLevel."""
    return whole("delay_level", value, low, MAX_DELAY_LEVEL, error)


def level_of_delay(name: str, value: object) -> int:
    """Return the smallest level of the default messageDelayLevel that is at least a delay; 1 is the first."""
    delay_s = seconds(name, value)
    if delay_s > _LEVELS_S[-1]:
        raise IllegalArgument(f"{name} is {delay_s:g} s; a redelivery waits for at most {_LEVELS_S[-1]} s (2 h)")
    return next(level for level, level_s in enumerate(_LEVELS_S, 1) if delay_s <= level_s)


# Messages


def body(value: object) -> bytes:
    """Return the body of a message as bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    advice = "pass bytes, as in text.encode()" if isinstance(value, str) else "pass bytes"
    raise IllegalMessage(f"body is {_kind(value)}; {advice}")


def _property_text(name: str, value: object) -> str:
    found = text(name, value, error=IllegalMessage)
    if names.separators_in(found):
        raise IllegalMessage(f"{name} {found!r} holds a character 0x01 or 0x02, which separate properties; remove it")
    return found


def unique_key(value: object) -> str:
    """Return the application's own name of a message; empty for none."""
    return text("unique_key", value, error=IllegalMessage)


def tag(value: object) -> str:
    """Return the tag of a message; empty for none.  Source: RocketMQ 5.3.3, `GrpcValidator.validateTag`."""
    if type(value) is str and value.isalnum() and value.isascii():
        return value  # fast path: this runs for every message
    found = _property_text("tags", value)
    if not found:
        return found
    if "|" in found:
        raise IllegalMessage(f"tags {found!r} holds '|', which separates tags in a subscription; a message has one tag")
    if found.strip() != found:
        raise IllegalMessage(f"tags {found!r} begins or ends with a blank, so no subscription matches it; strip it")
    return found


def keys(value: object) -> str:
    """Return the keys of a message in their form on the wire, separated by blanks; a str is one key."""
    if type(value) is str and value.isascii() and value.isprintable() and value and " " not in value:
        return value  # fast path
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Iterable) or isinstance(found, bytes | bytearray | memoryview):
        raise IllegalMessage(f"keys is {_kind(value)}; pass a str, or a list of them")
    checked = [_property_text("an entry of keys", key) for key in found if key != ""]
    for key in checked:
        if key.split() != [key]:
            raise IllegalMessage(f"key {key!r} holds a blank, which separates keys; pass keys={key.split()!r}")
    return " ".join(checked)


def properties(value: object) -> Mapping[str, str]:
    """Return the application's own properties."""
    if not isinstance(value, Mapping):
        raise IllegalMessage(f"properties is {_kind(value)}; pass a dict of str to str")
    for name, content in value.items():
        check_property(name, content)
    return value


def check_property(name: object, value: object) -> None:
    """Raise IllegalMessage for a property that a message cannot have."""
    if type(name) is str and type(value) is str and name not in names.RESERVED and name.strip() and value.strip():
        both = name + value
        if both.isascii() and both.isprintable():
            return  # fast path
    key = _property_text("the name of a property", name)
    content = _property_text(f"property {key!r}", value)
    if key in names.RESERVED:
        raise IllegalMessage(f"property {key!r} is reserved for the protocol; use another name")
    if not key.strip() or not content.strip():
        raise IllegalMessage(f"property {key!r}={content!r}: name and value are not blank; leave it out")


# Settings


def check(settings: object, checks: Mapping[str, Callable[[str, object], object]]) -> None:
    """Run each check on the field of that name of `settings`."""
    for name, checked in checks.items():
        checked(name, getattr(settings, name))


def at_least(low: int, high: int | None = None) -> Callable[[str, object], int]:
    """Return the check of a whole number."""
    return lambda name, value: whole(name, value, low, high)


def of_kind(kind: type[object]) -> Callable[[str, object], object]:
    """Return the check of an object of a class."""
    return lambda name, value: choice(name, value, kind, f"pass {_one(kind.__name__)}")


def or_none(checked: Callable[[str, object], object]) -> Callable[[str, object], object]:
    """Return the check of a value that may be left out."""
    return lambda name, value: None if value is None else checked(name, value)
