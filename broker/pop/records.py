"""Records of the revive topic: checkpoints of delivered messages, and acknowledgements.

A pop writes one checkpoint (tag ``ck``).  An acknowledgement is one record with tag ``ack``, or ``bAck`` for several
messages.  Bodies are JSON with short names, as RocketMQ writes them.  A checkpoint and its acknowledgements are in the
same queue of the revive topic.
Source: RocketMQ 5.5.1, `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopAckConstants`.
"""

from typing import Final

import msgspec

from sprocket.remoting.headers.base import Int, Long

CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
# An acknowledgement becomes readable this long after its checkpoint.
ACK_INTERVAL_MS: Final = 1000


class PopCheckPoint(msgspec.Struct, omit_defaults=False):
    """`n` messages of queue `q` of topic `t` were delivered to group `c` at `pt`, to be redelivered at ``pt + it``."""

    so: Long = 0  # offset of the first message
    pt: Long = 0  # pop time, ms
    it: Long = 0  # invisible time, ms
    bm: Long = 0  # bit i: message i is acknowledged
    n: Int = 0  # number of messages
    q: Int = 0  # queue id
    t: str = ""  # topic that they were read from: the real one or a retry topic
    c: str = ""  # consumer group
    ro: Long = 0  # offset of the checkpoint in its revive queue
    d: list[Int] | None = None  # distance of each from `so`; None when they follow each other
    bn: str | None = None  # broker name
    rp: str | None = None  # how often the checkpoint was written again, a number
    sp: bool = False  # whether the redelivery is not counted

    @property
    def revive_time(self) -> int:
        """Time of the redelivery, ms."""
        return self.pt + self.it

    @property
    def is_done(self) -> bool:
        """Whether all messages are acknowledged."""
        return self.bm == (1 << self.n) - 1 if self.n < 32 else self.bm in (-1, 0xFFFFFFFF)

    def offset_at(self, index: int) -> int:
        """Return the queue offset of message `index`."""
        return self.so + (index if not self.d else self.d[index])

    def index_of(self, offset: int) -> int:
        """Return the index of the message at a queue offset; -1 if there is none."""
        distance = offset - self.so
        if not self.d:
            return distance if 0 <= distance < self.n else -1
        return self.d.index(distance) if distance in self.d else -1


class AckMsg(msgspec.Struct):
    """Acknowledgement of one message of a pop."""

    ao: Long = -1  # its queue offset
    so: Long = 0  # offset of the pop's first message
    c: str = ""  # consumer group
    t: str = ""  # topic that it was read from
    q: Int = 0  # queue id
    pt: Long = 0  # pop time, ms
    bn: str | None = None  # broker name


class BatchAckMsg(AckMsg):
    """Acknowledgement of several messages of a pop."""

    aol: list[Long] = []  # their queue offsets
