"""Topics that a broker group's registrations no longer name, for deleteTopicWithBrokerRegistration.

RocketMQ 5.3.3 (`RouteInfoManager.registerBroker`) takes the topics of every registration for all topics of the broker.
Often they are not.  Its broker registers a changed topic alone (`registerIncrementBrokerData`), and a large table in
parts (enableSplitRegistration).  Nothing in the request tells these cases apart, so routes in use would be removed.

Here a registration counts as a list if it names the topics that every broker has.  A part of a table may do so by
chance.  Therefore a route is removed only if nothing named its topic between three lists: in that time a whole table
was sent, in any parts and order.  A Sprocket broker marks parts, so its list is the whole table and counts at once.

A file of its own, because this rule is a subject of its own; the tables and the registration use its one class.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

# `TopicConfigManager.init` adds these to every broker, and two topics with the names of the broker and its cluster.
_FIXED_TOPICS = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")


@dataclass(slots=True)
class NamedTopics:
    """When each topic of one broker group was last named, counted in lists."""

    _lists: int = 0
    # Twice the number of the list that named the topic; plus one if it was named after that list.
    _last: dict[str, int] = field(default_factory=dict)
    # Whether another list may remove a route.
    awaits_list: bool = False

    def note(self, topics: Iterable[str]) -> None:
        """Note topics of a registration that removes no route."""
        self._last.update(dict.fromkeys(topics, 2 * self._lists + 1))

    def unnamed(
        self, broker: tuple[str, str], named: Collection[str], routed: Collection[str], *, is_whole: bool
    ) -> list[str]:
        """Note a registration that names `named`.  Return those of the `routed` topics whose route must be removed.

        `broker` is its cluster and name.  `is_whole`: if this is a list, it names all topics.
        """
        if not all(topic in named for topic in (*_FIXED_TOPICS, *broker)):
            self.note(named)
            return []
        self._lists += 1
        moment = 2 * self._lists
        # A topic without a record was routed before the setting was turned on: it counts as named now.
        last = {topic: self._last.get(topic, moment) for topic in routed} | dict.fromkeys(named, moment)
        removed = [topic for topic in routed if topic not in named and (is_whole or last[topic] <= moment - 4)]
        for topic in removed:
            del last[topic]
        self._last = last
        self.awaits_list = any(seen < moment for seen in last.values())
        return removed
