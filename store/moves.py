"""Appends of records that go on to another topic, made from the stored ones.

Used where a broker moves many messages: ends of transactions, and timed messages that are due.  The compiled engine
makes them.  With pure Python, each record becomes a `PendingMessage` instead.
"""

from collections.abc import Collection
from functools import cache
from typing import Any, Final, Protocol, cast, runtime_checkable

from sprocket.engine.choice import native
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
from store.appender import EncodedRecords
from store.queue.logic_queue import LogicQueue

engine: Final = native("store.moves_native")
# Other flags need more than the bytes of a record.
PLAIN_FLAGS: Final = int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS) | COMPRESSION_MASK


@runtime_checkable
class MovingStore(Protocol):
    """Part of `MessageStore` that takes such records."""

    def encoded_limits(self) -> tuple[int, int]: ...

    def plain_queue(self, topic: str, queue_id: int, /) -> LogicQueue | None: ...

    def append_encoded(self, records: EncodedRecords, /) -> int: ...


@cache
def _is_moving(store_type: type) -> bool:
    # A check against a protocol takes 10 us, and each turn of the timer makes one.
    return issubclass(store_type, MovingStore)


def new_moves(store: object, barred_topics: Collection[str] = ()) -> Any | None:
    """Return an empty `Moves` of the engine, for the next `append_encoded` of `store`.

    Records for `barred_topics` are for Python.  None with pure Python, or if the store accepts only messages now.
    """
    store_type: type = type(store)
    if engine is None or not _is_moving(store_type):
        return None
    moving = cast(MovingStore, store)
    room_bytes, max_record_bytes = moving.encoded_limits()
    if not room_bytes:
        return None
    plain_queue = moving.plain_queue

    def queue_of(topic: str, queue_id: int) -> LogicQueue | None:
        return None if topic in barred_topics else plain_queue(topic, queue_id)

    return engine.Moves(PLAIN_FLAGS, room_bytes, max_record_bytes, queue_of)
