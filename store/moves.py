"""Appends of records that go on to another topic, made from the stored ones.

Used where a broker moves many messages: ends of transactions, and timed messages that are due.  The compiled engine
makes them.  With pure Python, each record becomes a `PendingMessage` instead.
"""

from collections.abc import Collection
from typing import Any, Final

from sprocket.engine.choice import native
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
from store.message_store import MessageStore
from store.queue.logic_queue import LogicQueue

engine: Final = native("store.moves_native")
# Other flags need more than the bytes of a record.
PLAIN_FLAGS: Final = int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS) | COMPRESSION_MASK


def new_moves(store: MessageStore, barred_topics: Collection[str] = ()) -> Any | None:
    """Return an empty `Moves` of the engine, for the next `append_encoded` of `store`.

    Records for `barred_topics` are for Python.  None with pure Python, or if the store accepts only messages now.
    """
    room_bytes, max_record_bytes = (0, 0) if engine is None else store.encoded_limits()
    if engine is None or not room_bytes:
        return None

    def queue_of(topic: str, queue_id: int) -> LogicQueue | None:
        return None if topic in barred_topics else store.plain_queue(topic, queue_id)

    return engine.Moves(PLAIN_FLAGS, room_bytes, max_record_bytes, queue_of)
