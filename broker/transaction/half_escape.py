"""Transfer of a lost master's half messages to another master of the cluster, which then checks them.

A slave that acts for its master cannot end a transaction: its log accepts neither real messages nor op messages.  So
open half messages are sent to another master, and the half queue's offset tells how far that has come.
Source: RocketMQ 5.3.3, `TransactionalMessageServiceImpl.check`, `TransactionalMessageBridge.escapeMessage`.  There a
message that cannot be sent is skipped after a few tries; here it waits.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.core import BrokerCore
from broker.service import Service
from broker.transaction.half_message import QUEUE_ID, HalfMessage
from broker.transaction.recovery import read_record
from broker.transaction.transactions import Transactions
from broker.turns import NextTurn
from sprocket.common.errors import StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from store.delivery import Outstanding
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

_BATCH_MESSAGES: Final = 64
_BATCH_OFFSETS: Final = 4096


class HalfEscape(Service):
    """Transfer of one acting slave.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, transactions: Transactions) -> None:
        self._core = core
        self._transactions = transactions
        self._next_turn = NextTurn(self._turn, core.clock.monotonic, core.call_later)
        self._outstanding: Outstanding | None = None

    def take_over(self) -> None:
        """Find the open transactions in the lost master's log."""
        self._transactions.load(writes=False)

    def activate(self) -> None:
        """Start to look for half messages at every transactionCheckInterval."""
        self._next_turn.wake_in(0.0)

    def deactivate(self) -> None:
        """Stop sending."""
        self._next_turn.cancel()
        if self._outstanding is not None:
            self._outstanding.cancel()
            self._outstanding = None

    def _turn(self) -> None:
        try:
            is_all = self.send()
        except StoreError as error:
            logger.warning("event=half_escape_postponed reason=%r", str(error))
            is_all = True
        if is_all:
            self._next_turn.wake_in(self._core.config.broker.transaction_check_interval / 1000)

    def send(self) -> bool:
        """Send the next open half messages; return whether there are none.  Raises StoreError."""
        opened, store = self._transactions.open, self._core.store
        opened.skip_to(store.min_offset(TRANS_HALF_TOPIC, QUEUE_ID))
        start = opened.half_offset
        end = min(store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID), start + _BATCH_OFFSETS)
        messages: list[PendingMessage] = []
        at = start
        while at < end and len(messages) < _BATCH_MESSAGES:
            if opened.is_open(at):
                message = self._half(at)
                if message is not None:
                    messages.append(message)
            at += 1
        if at == start:
            return True
        done = self._escaped(start, at)
        if messages:
            self._outstanding = self._core.delivery.deliver(messages, done)
        else:
            done()
        return False

    def _half(self, offset: int) -> PendingMessage | None:
        record = read_record(self._core.store, TRANS_HALF_TOPIC, QUEUE_ID, offset)
        if isinstance(record, str):
            peer_lines.error(logger, "", "event=half_message_unreadable queue_offset=%d reason=%r", offset, record)
            return None
        half = HalfMessage(record)
        if half.target is None:
            peer_lines.error(logger, "", "event=half_message_dropped queue_offset=%d reason=no_real_topic", offset)
            return None
        return half.resumed(self._transactions.tags_codes)

    def _escaped(self, start: int, end: int) -> Callable[[], None]:
        def done() -> None:
            self._outstanding = None
            for offset in range(start, end):
                self._transactions.open.end(offset)
            self._transactions.commit_at_once()
            self._next_turn.wake_in(0.0)

        return done
