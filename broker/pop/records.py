"""What pop writes into the revive topic: checkpoints of what was handed out, and acknowledgements.

A pop writes one checkpoint (tag ``ck``); an acknowledgement one record with the tag ``ack``, several at once one
with ``bAck``.  Bodies are JSON with short names, as RocketMQ writes them; the queue in the revive topic is the
same for a checkpoint and its acknowledgements.
Source: RocketMQ 5.3.3, `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopAckConstants`.
"""

from typing import Final

import msgspec

from sprocket.remoting.headers.base import Int, Long

CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
# The revive queue id of messages that were popped in order: there is no checkpoint in the log for them.
ORDER_REVIVE_QUEUE: Final = 999
# An acknowledgement becomes readable this long after its checkpoint.
ACK_INTERVAL_MS: Final = 1000


class PopCheckPoint(msgspec.Struct, omit_defaults=False):
    """`n` messages of queue `q` of topic `t` were handed to group `c` at `pt` and come again at ``pt + it``."""

    so: Long = 0  # offset of the first of them
    pt: Long = 0  # pop time, ms
    it: Long = 0  # invisible time, ms
    bm: Long = 0  # bit i: the i-th is acknowledged
    n: Int = 0  # how many
    q: Int = 0  # queue id
    t: str = ""  # the topic that they were taken from: the real one or a retry topic
    c: str = ""  # consumer group
    ro: Long = 0  # where the checkpoint lies in its revive queue
    d: list[Int] | None = None  # distance of each from `so`; None when they follow each other
    bn: str | None = None  # broker name
    rp: str | None = None  # how often the checkpoint was written again, a number

    @property
    def revive_time(self) -> int:
        """When the unacknowledged come again, ms."""
        return self.pt + self.it

    @property
    def is_done(self) -> bool:
        """Whether all of them are acknowledged."""
        return self.bm == (1 << self.n) - 1 if self.n < 32 else self.bm in (-1, 0xFFFFFFFF)

    def offset_at(self, index: int) -> int:
        """Queue offset of the `index`-th message."""
        return self.so + (index if not self.d else self.d[index])

    def index_of(self, offset: int) -> int:
        """Which of the messages lies at queue offset `offset`; -1 if none does."""
        distance = offset - self.so
        if not self.d:
            return distance if 0 <= distance < self.n else -1
        return self.d.index(distance) if distance in self.d else -1


class AckMsg(msgspec.Struct):
    """One message of a pop is acknowledged."""

    ao: Long = -1  # its queue offset
    so: Long = 0  # offset of the pop's first message
    c: str = ""  # consumer group
    t: str = ""  # topic that it was taken from
    q: Int = 0  # queue id
    pt: Long = 0  # pop time, ms
    bn: str | None = None  # broker name


class BatchAckMsg(AckMsg):
    """Several messages of a pop are acknowledged."""

    aol: list[Long] = []  # their queue offsets
