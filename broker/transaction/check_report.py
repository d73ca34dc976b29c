"""Report of one turn over the open transactions: one log line of each kind, with a count.

A line per transaction would fill the log.  A lost producer may leave thousands of transactions, and every turn checks
each again.
"""

import logging
from collections import Counter
from typing import Final

from broker.transaction.check_rules import Verdict
from broker.transaction.half_message import HalfMessage
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC

logger = logging.getLogger(__name__)

# Names in one line; the count tells how many there are in all.
_MAX_EXAMPLES: Final = 5


class CheckReport:
    """Counts of one turn.  Lives in the event loop's thread."""

    def __init__(self) -> None:
        self._unasked: Counter[str] = Counter()  # by producer group
        self._given_up: Counter[str] = Counter()  # by topic
        self._given_up_keys: list[str] = []
        self._not_copied: list[str] = []

    def unasked(self, group: str) -> None:
        """Count a transaction whose producer group has no connected producer that may be asked."""
        self._unasked[group] += 1

    def given_up(self, half: HalfMessage) -> None:
        """Count a transaction that reached the limit of checks and was moved to TRANS_CHECK_MAX_TIME_TOPIC."""
        self._given_up[half.target[0] if half.target is not None else ""] += 1
        if len(self._given_up_keys) < _MAX_EXAMPLES:
            self._given_up_keys.append(half.unique_key or "")

    def not_copied(self, half: HalfMessage, verdict: Verdict, reason: str) -> None:
        """Count a half message whose copy the store refused."""
        self._not_copied.append(f"queue offset {half.record.queue_offset}, {verdict.name}: {reason}")

    def write(self) -> None:
        """Write the lines of the turn, and reset the counts."""
        if self._unasked:
            logger.warning(
                "event=no_producer_to_ask transactions=%d groups=%d most=%s",
                self._unasked.total(), len(self._unasked), _examples(self._unasked),
            )  # fmt: skip
        if self._given_up:
            logger.error(
                "event=transaction_given_up transactions=%d topics=%s unique_keys=%s moved_to=%s",
                self._given_up.total(), _examples(self._given_up), list(self._given_up_keys),
                TRANS_CHECK_MAX_TIME_TOPIC,
            )  # fmt: skip
        if self._not_copied:
            logger.error(
                "event=half_message_not_copied transactions=%d first=%r", len(self._not_copied), self._not_copied[0]
            )
        for counts in (self._unasked, self._given_up, self._given_up_keys, self._not_copied):
            counts.clear()


def _examples(counts: Counter[str]) -> dict[str, int]:
    return dict(counts.most_common(_MAX_EXAMPLES))
