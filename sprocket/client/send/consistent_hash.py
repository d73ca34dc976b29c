"""Queue of a message group or lite topic: the same one for every client and proxy, RocketMQ's too; pure.

A file of its own: it is one published algorithm.  Source: RocketMQ 5.3.3, `SendMessageQueueSelector`; Guava,
`Hashing.consistentHash`; Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm".
"""

from typing import Final

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = 2**64 - 1


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of `value`, from 0 to `buckets` - 1.  One more bucket moves few values."""
    state = value & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        following = int((candidate + 1) / ((float((state >> 33) + 1)) / 2.0**31))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
