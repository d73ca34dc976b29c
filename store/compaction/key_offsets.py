"""Which messages a compaction keeps: the rules, without disk.

Source: RocketMQ 5.3.3, `CompactionLog.shouldRetainMsg`, `OffsetMap`.
"""

from hashlib import blake2b
from typing import Final

from sprocket.remoting.message.properties import KEYS, encoded_name, find_last
from store.record.record import Record

_KEYS: Final = encoded_name(KEYS)
_DIGEST_BYTES: Final = 16
# Memory of an entry: a number of 128 bits, a number of 64 bits, and their place in a dict that has just grown.
ENTRY_BYTES: Final = 256


def key_in(properties: bytes) -> bytes:
    """Return the key in a message's encoded properties: all of its KEYS, as RocketMQ takes them; empty without one."""
    return (find_last(properties, _KEYS) or b"").strip()


def key_of(record: Record) -> bytes:
    """Return the key of a stored message, see `key_in`."""
    return key_in(bytes(record.properties))


class KeyOffsets:
    """Last queue offset of each key, in at most `max_bytes` of memory.

    Keys are known by a hash of 128 bits, as in RocketMQ.  Two of a billion keys have the same one with a probability of
    10**-21, and nobody can find two that have.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_keys = max(1, max_bytes // ENTRY_BYTES)
        self._offsets: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @staticmethod
    def _hash(key: bytes) -> int:
        return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest())

    def note(self, key: bytes, offset: int) -> bool:
        """Note a message.  Return False, and note nothing, if another key is too many."""
        number = self._hash(key)
        known = self._offsets.get(number)
        if known is None and len(self._offsets) >= self._max_keys:
            return False
        self._offsets[number] = offset if known is None else max(known, offset)
        return True

    def last(self, key: bytes) -> int:
        """Return the last offset of a key that was noted; -1 without one."""
        return self._offsets.get(self._hash(key), -1)

    def is_last(self, key: bytes, offset: int) -> bool:
        """Return whether no later message with this key was noted."""
        return self.last(key) <= offset

    @property
    def is_full(self) -> bool:
        """Whether another key would be too many."""
        return len(self._offsets) >= self._max_keys

    @property
    def size_bytes(self) -> int:
        """Memory of the keys."""
        return len(self._offsets) * ENTRY_BYTES


class Retained:
    """Choice of the messages to keep.

    A message without a body deletes its key.  It is kept itself until it is older than `delete_before_ms`, so that
    readers that are behind see it.  While older parts remain that may have the key (`is_oldest` is false), it is kept.
    """

    def __init__(self, offsets: KeyOffsets, *, is_oldest: bool, delete_before_ms: int) -> None:
        self._offsets = offsets
        self._is_oldest = is_oldest
        self._delete_before_ms = delete_before_ms

    def keeps(self, record: Record) -> bool:
        """Return whether to keep a message.  One without a key is not kept."""
        key = key_of(record)
        if not key or not self._offsets.is_last(key, record.queue_offset):
            return False
        return bool(record.body) or not self._is_oldest or record.store_timestamp >= self._delete_before_ms
