"""What to do with a half message that nobody has ended.

Source: RocketMQ 5.3.3, `TransactionalMessageServiceImpl.check`, `needDiscard`, `needSkip`,
`EndTransactionProcessor.rejectCommitOrRollback`.  Different here: a copy that an immune message gets counts no
question, because there was none.
"""

from dataclasses import dataclass
from enum import Enum

from broker.transaction.half_message import HalfMessage


class Verdict(Enum):
    """What the check does with one half message."""

    WAIT = "wait"
    # Write it again, so that the queue's begin moves on, and ask nobody.
    RENEW = "renew"
    # Write it again and ask its producer.
    CHECK = "check"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class CheckRules:
    """The configuration of the check, in ms."""

    timeout_ms: int  # transactionTimeOut
    check_max: int  # transactionCheckMax
    reserved_ms: int  # fileReservedTime: an older one is about to leave the log

    def verdict(self, half: HalfMessage, turn_began_ms: int, now_ms: int) -> Verdict:
        """What to do with `half` at `now_ms`, in a turn of the check that began at `turn_began_ms`."""
        record = half.record
        age_ms = now_ms - record.born_timestamp
        if half.check_times >= self.check_max or age_ms > self.reserved_ms:
            return Verdict.GIVE_UP
        if record.store_timestamp >= turn_began_ms:
            return Verdict.WAIT
        immunity_ms = half.immunity_ms(self.timeout_ms)
        if immunity_ms is not None:
            return Verdict.RENEW if age_ms < immunity_ms and half.prepared_offset != -1 else Verdict.CHECK
        # Born in the future: a clock has stepped, so the age says nothing.
        return Verdict.WAIT if 0 <= age_ms < self.timeout_ms else Verdict.CHECK


def is_too_late(half: HalfMessage, timeout_ms: int, now_ms: int) -> bool:
    """Whether its producer may end it no more unasked: the immunity that it asked for is over.

    `timeout_ms` is transactionTimeOut.
    """
    immunity_ms = half.immunity_ms(timeout_ms)
    return immunity_ms is not None and now_ms - half.record.born_timestamp > max(immunity_ms, timeout_ms)
