"""Verdict about a half message whose transaction has not ended.

Source: RocketMQ 5.3.3, `TransactionalMessageServiceImpl.check`, `needDiscard`, `needSkip`,
`EndTransactionProcessor.rejectCommitOrRollback`.  Unlike there, a copy of an immune message does not count as a check,
because the producer was not asked.
"""

from dataclasses import dataclass
from enum import Enum

from broker.transaction.half_message import HalfMessage


class Verdict(Enum):
    """What the check does with one half message."""

    WAIT = "wait"
    # Write it again, so that the start of the half queue can advance, and do not ask the producer.
    RENEW = "renew"
    # Write it again and ask the producer.
    CHECK = "check"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class CheckRules:
    """The configuration of the check, in ms."""

    timeout_ms: int  # transactionTimeOut
    check_max: int  # transactionCheckMax
    reserved_ms: int  # fileReservedTime: an older message is about to be deleted

    def verdict(self, half: HalfMessage, turn_began_ms: int, now_ms: int) -> Verdict:
        """Return what to do with `half` at `now_ms`, in a turn that began at `turn_began_ms`."""
        record = half.record
        age_ms = now_ms - record.born_timestamp
        if half.check_times >= self.check_max or age_ms > self.reserved_ms:
            return Verdict.GIVE_UP
        if record.store_timestamp >= turn_began_ms:
            return Verdict.WAIT
        immunity_ms = half.immunity_ms(self.timeout_ms)
        if immunity_ms is not None:
            return Verdict.RENEW if age_ms < immunity_ms and half.prepared_offset != -1 else Verdict.CHECK
        # Born in the future: a clock stepped, so the age means nothing.
        return Verdict.WAIT if 0 <= age_ms < self.timeout_ms else Verdict.CHECK


def is_too_late(half: HalfMessage, timeout_ms: int, now_ms: int) -> bool:
    """Return whether the producer may no longer end the transaction by itself: the immunity that it asked for is over.

    `timeout_ms` is transactionTimeOut.
    """
    immunity_ms = half.immunity_ms(timeout_ms)
    return immunity_ms is not None and now_ms - half.record.born_timestamp > max(immunity_ms, timeout_ms)
