"""Topics that stores know, so that a misspelt name is refused instead of read as an empty topic."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from spark.decode.columns import nearest
from spark.decode.decoder import HALF_TOPIC
from spark.files.consume_queue import every_topic_of
from spark.files.store_directory import StoreDirectory
from sprocket.common.errors import ConfigError
from sprocket.common.files.atomic_file import read_file_or_backup

_MAX_NAMED: Final = 10


def check_topics(stores: Sequence[StoreDirectory], topics: Iterable[str]) -> None:
    """Raise ConfigError for one of `topics` that none of `stores` knows."""
    for topic in sorted(topics):
        unknown = unknown_topic(stores, topic)
        if unknown is not None:
            raise ConfigError(
                f"{unknown}. To search the whole log for records of a deleted topic, name no topic and filter by the "
                "column topic"
            )


def unknown_topic(stores: Sequence[StoreDirectory], topic: str) -> str | None:
    """Return a text about `topic` if none of `stores` knows it, else None.

    A store knows the topics of ``config/topics.json`` and those with ConsumeQueues.  Nothing says which topics a store
    without that table has, such as a copy of the log, or one whose queues are damaged: each topic passes.
    """
    declared = [_declared(store) for store in stores]
    if not all(declared) or topic == HALF_TOPIC.decode():
        return None
    topics = sorted(set().union(*declared, *(every_topic_of(store.root) for store in stores)))
    if topic in topics:
        return None
    named = ", ".join(topics[:_MAX_NAMED]) + (", ..." if len(topics) > _MAX_NAMED else "")
    return f"no store has the topic {topic!r}{nearest(topic, topics)}; there are {named}"


def _declared(store: StoreDirectory) -> set[str]:
    """Return the topics of the broker's table; none if it is missing or unreadable.

    Source: RocketMQ 5.3.3, `TopicConfigSerializeWrapper`.
    """
    try:
        return set(json.loads(read_file_or_backup(store.root / "config" / "topics.json") or b"")["topicConfigTable"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()
