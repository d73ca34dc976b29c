"""Metrics of transactions: those that ended, and half messages that are open.

Source of names, labels and boundaries: RocketMQ 5.3.3, `BrokerMetricsManager.initTransactionMetrics`.
"""

from collections import Counter
from typing import Final

from broker.transaction.half_message import QUEUE_ID
from broker.transaction.transactions import Transactions
from sprocket.common.errors import StoreError
from sprocket.common.next_turn import next_turn
from sprocket.metrics.declared import Kind, Metric
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from store.message_store import MessageStore

# Half messages read between two turns of the event loop, and those whose topic is remembered at most.
_TURN_MESSAGES: Final = 128
_MAX_OPEN: Final = 20_000


class TransactionMetrics:
    """Counts for export.  Lives in the event loop's thread."""

    def __init__(self, transactions: Transactions, store: MessageStore) -> None:
        self._transactions = transactions
        self._store = store
        # Topics of open half messages, by queue offset; the empty text if the message cannot be read.
        self._topics: dict[int, str] = {}

    async def look(self) -> None:
        """Find the topics of the open half messages; of the oldest ones if there are very many."""
        end = self._store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID)
        offsets = self._transactions.open.open_offsets(end, _MAX_OPEN)
        known, found = self._topics, dict[int, str]()
        for number, offset in enumerate(offsets):
            topic = known.get(offset)
            if topic is None:
                topic = self._topic(offset)
                if number % _TURN_MESSAGES == 0:
                    await next_turn()
            found[offset] = topic
        self._topics = found

    def _topic(self, offset: int) -> str:
        entry = self._store.entry(TRANS_HALF_TOPIC, QUEUE_ID, offset)
        try:
            half = None if entry is None else self._transactions.half_in_queue(offset, entry[0])
        except StoreError:
            half = None
        return half.target[0] if half is not None and half.target is not None else ""

    def metrics(self) -> list[Metric]:
        """Return the metrics."""
        done, topic = self._transactions, ("topic",)
        return [
            Metric(
                "rocketmq_half_messages", Kind.GAUGE, "half messages that are neither committed nor rolled back",
                lambda: [((topic,), count) for topic, count in Counter(self._topics.values()).items()], topic,
            ),
            Metric(
                "rocketmq_commit_messages_total", Kind.COUNTER, "transactions that were committed",
                lambda: [((topic,), count) for topic, count in done.committed.items()], topic,
            ),
            Metric(
                "rocketmq_rollback_messages_total", Kind.COUNTER, "transactions that were rolled back",
                lambda: [((topic,), count) for topic, count in done.rolled_back.items()], topic,
            ),
            Metric(
                "rocketmq_finish_message_latency", Kind.HISTOGRAM,
                "time from the birth of a half message to its commit, seconds", done.latencies.read, topic, "ms",
            ),
        ]  # fmt: skip
