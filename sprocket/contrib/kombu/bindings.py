"""Which messages a queue gets: its bindings to exchanges, and the subscription that they are at a broker.

Source: AMQP 0-9-1, 3.1.3, exchange types; kombu, `virtual.exchange`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sprocket.contrib.kombu.names import DEFAULT_EXCHANGE, tag_of, topic_of

DIRECT: Final = "direct"
TOPIC: Final = "topic"
FANOUT: Final = "fanout"

_ALL: Final = "*"
_WORDS: Final = {"*": r"[^.]+", "#": ".*?"}


@lru_cache(maxsize=4096)
def _pattern(key: str) -> re.Pattern[str]:
    """Return the pattern of a key of a topic exchange: ``*`` is one word, ``#`` any number of them."""
    words = r"\.".join(_WORDS.get(word) or re.escape(word) for word in key.split("."))
    # "a.#" also means "a" alone.
    return re.compile(words.replace(r"\..*?", r"(?:\..*?)?"))


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a queue: an exchange, its type, and a routing key or pattern."""

    exchange: str
    kind: str
    key: str

    def matches(self, routing_key: str) -> bool:
        """Return whether a message with `routing_key` goes to the queue."""
        if self.kind == FANOUT:
            return True
        if self.kind == TOPIC and not self.is_exact:
            return _pattern(self.key).fullmatch(routing_key) is not None
        return self.key == routing_key

    @property
    def is_exact(self) -> bool:
        """Whether one routing key alone matches, so that a broker can filter by its tag."""
        return self.kind == DIRECT or (self.kind == TOPIC and not any(word in _WORDS for word in self.key.split(".")))


@dataclass(slots=True)
class QueueBindings:
    """The bindings of one queue.  The default exchange is bound to every queue under its name."""

    queue: str
    bindings: set[Binding] = field(default_factory=set)

    def add(self, binding: Binding) -> bool:
        """Add a binding; return whether it is new."""
        is_new = binding not in self.bindings
        self.bindings.add(binding)
        return is_new

    @property
    def has_own_topic(self) -> bool:
        """Whether the queue is bound to an exchange of its own name, as Celery's are.

        What is sent to the default exchange for it then goes there, see `publish_topic`.
        """
        return Binding(self.queue, DIRECT, self.queue) in self.bindings

    def _all(self) -> Iterable[Binding]:
        yield from self.bindings
        if not self.has_own_topic:
            yield Binding("", DIRECT, self.queue)

    def subscriptions(self, prefix: str = "") -> dict[str, str]:
        """Return the subscriptions by topic: the tags of all exact keys, or ``*``."""
        keys: dict[str, set[str]] = {}
        for binding in self._all():
            tag = tag_of(binding.key) if binding.is_exact else ""
            # No subscription names messages without a tag.
            keys.setdefault(topic_of(binding.exchange, prefix), set()).add(tag or _ALL)
        return {topic: _ALL if _ALL in tags else " || ".join(sorted(tags)) for topic, tags in sorted(keys.items())}

    def wants(self, exchange: str, routing_key: str) -> bool:
        """Return whether a message of `exchange` goes to the queue: tags are a broker's first choice, not the rule."""
        if not exchange and routing_key == self.queue:
            return True
        return any(binding.exchange == exchange and binding.matches(routing_key) for binding in self.bindings)


def publish_topic(exchange: str, routing_key: str, topics: Iterable[str], prefix: str = "") -> str:
    """Return the topic of a message; `topics` are those that exist, as far as they were asked for.

    A message to the default exchange goes to the topic of the queue's own exchange if it has one.
    """
    if exchange:
        return topic_of(exchange, prefix)
    own = topic_of(routing_key, prefix) if routing_key else ""
    return own if own in topics else prefix + DEFAULT_EXCHANGE
