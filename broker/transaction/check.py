"""Checks of open transactions with their producers.

Every transactionCheckInterval one turn goes over the open half messages.  A half message that is old enough is written
again, with one more check counted, and a connected producer of its group is asked; it answers with END_TRANSACTION.
After transactionCheckMax checks, or shortly before its segment is deleted, the message goes to
TRANS_CHECK_MAX_TIME_TOPIC.
Source: RocketMQ 5.3.3, `TransactionalMessageCheckService`, `AbstractTransactionalMessageCheckListener`,
`DefaultTransactionalMessageCheckListener`, `ProducerManager.getAvailableChannel`.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.client.clients import ClientChannel, Member
from broker.core import BrokerCore
from broker.service import Service
from broker.transaction.check_report import CheckReport
from broker.transaction.check_rules import CheckRules, Verdict
from broker.transaction.half_message import QUEUE_ID, HalfMessage, check_request
from broker.transaction.recovery import read_record
from broker.transaction.transactions import Transactions
from broker.turns import Timer
from sprocket.common.errors import DiskFailed, RequestError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from store.message_store import PendingMessage
from store.record.record import Appended

logger = logging.getLogger(__name__)

# Limits of one step of a turn, so that other work is done in between.
_STEP_MESSAGES: Final = 256
_STEP_BYTES: Final = 4 << 20
_STEP_OFFSETS: Final = 4096
_MS_PER_HOUR: Final = 3_600_000


class TransactionCheck(Service):
    """One timer for all half messages.  Lives in the event loop's thread."""

    def __init__(
        self, core: BrokerCore, transactions: Transactions, may_ask: Callable[[ClientChannel, str], bool]
    ) -> None:
        """`may_ask` returns whether the client of a connection may see a half message of a topic."""
        self._config = core.config
        self._store = core.store
        self._topics = core.topics
        self._producers = core.producers
        self._transactions = transactions
        self._clock = core.clock
        self._call_later = core.call_later
        self._timer: Timer | None = None
        self._next_member = 0
        self._report = CheckReport()
        self._may_ask = may_ask
        self._at = self._end = self._began_ms = 0

    def take_over(self) -> None:
        """Find the open transactions again, because another broker handled some of them."""
        self._transactions.load()

    def activate(self) -> None:
        """Start the first turn after one interval."""
        self._wait()

    def deactivate(self) -> None:
        """Stop the turns."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = self._call_later(self._config.broker.transaction_check_interval / 1000, self._begin)

    def _begin(self) -> None:
        self.begin()
        self._go_on()

    def _go_on(self) -> None:
        try:
            is_done = self.step()
        except DiskFailed:
            return  # Latched: the store reports it to its owner.
        except StoreError as error:
            logger.warning("event=transaction_check_postponed reason=%r", str(error))
            is_done = True
        except Exception:
            logger.exception("event=transaction_check_failed")
            is_done = True
        if is_done:
            self._wait()
        else:
            self._timer = self._call_later(0.0, self._go_on)

    # One turn

    def turn(self) -> None:
        """Run a whole turn at once.  Raises StoreError if the store refuses; what it refused stays open."""
        self.begin()
        while not self.step():
            pass

    def begin(self) -> None:
        """Begin a turn over the current half messages; what the turn writes belongs to the next one."""
        store, opened = self._store, self._transactions.open
        self._began_ms = self._clock.wall_ms()
        self._end = store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID)
        low = store.min_offset(TRANS_HALF_TOPIC, QUEUE_ID)
        if opened.half_offset < min(low, self._end):
            logger.error("event=half_messages_expired from=%d to=%d", opened.half_offset, low)
            opened.skip_to(low)
            self._transactions.moved()
        self._at = opened.half_offset

    def step(self) -> bool:
        """Check the next half messages of the turn; return whether the turn is over."""
        opened = self._transactions.open
        broker = self._config.broker
        rules = CheckRules(
            broker.transaction_time_out,
            broker.transaction_check_max,
            self._config.store.file_reserved_time * _MS_PER_HOUR,
        )
        now_ms = self._clock.wall_ms()
        acts: list[tuple[HalfMessage, Verdict]] = []
        size_bytes, stop = 0, min(self._end, self._at + _STEP_OFFSETS)
        while self._at < stop and len(acts) < _STEP_MESSAGES and size_bytes < _STEP_BYTES:
            offset = self._at
            self._at += 1
            if not opened.is_open(offset):
                continue
            half = self._read(offset)
            if half is not None:
                verdict = rules.verdict(half, self._began_ms, now_ms)
                if verdict is not Verdict.WAIT:
                    acts.append((half, verdict))
                    size_bytes += half.record.size_bytes
        self._act(acts)
        if self._at < self._end:
            return False
        self._transactions.commit_offsets()
        self._report.write()
        return True

    def _read(self, offset: int) -> HalfMessage | None:
        record = read_record(self._store, TRANS_HALF_TOPIC, QUEUE_ID, offset)
        if not isinstance(record, str):
            return HalfMessage(record)
        peer_lines.error(logger, "", "event=half_message_unreadable queue_offset=%d reason=%r", offset, record)
        self._transactions.append([], [offset])
        return None

    # Actions

    def _act(self, acts: list[tuple[HalfMessage, Verdict]]) -> None:
        if not acts:
            return
        try:
            self._write(acts)
        except RequestError as error:
            if len(acts) > 1:
                # One message exceeds a limit.  The others must not wait for it.
                for act in acts:
                    self._act([act])
                return
            half, verdict = acts[0]
            record = half.record
            self._report.not_copied(half, verdict, error.remark)
            if verdict is Verdict.CHECK:
                self._ask(half, (record.queue_offset, record.physical_offset, record.size_bytes), 0)

    def _write(self, acts: list[tuple[HalfMessage, Verdict]]) -> None:
        messages: list[PendingMessage] = []
        given_up: list[int] = []
        tags_codes = self._transactions.tags_codes
        for half, verdict in acts:
            if verdict is Verdict.GIVE_UP:
                messages.append(half.given_up(tags_codes))
                given_up.append(half.record.queue_offset)
            elif verdict is Verdict.CHECK:
                messages.append(half.checked_copy(tags_codes))
            else:
                messages.append(half.immune_copy(tags_codes))
        if given_up:
            self._topics.get_or_create(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        appended = self._transactions.append(messages, given_up)
        opened = self._transactions.open
        for (half, verdict), where in zip(acts, appended, strict=True):
            if verdict is Verdict.GIVE_UP:
                self._report.given_up(half)
            else:
                # No op message lists it: RocketMQ would conclude that the copy has ended as well.
                opened.end(half.record.queue_offset)
                opened.copied(where[0], half.identity)
        self._transactions.moved()
        self._ask_when_confirmed(
            [(act[0], where) for act, where in zip(acts, appended, strict=True) if act[1] is Verdict.CHECK]
        )

    def _ask_when_confirmed(self, asked: list[tuple[HalfMessage, Appended]]) -> None:
        """Ask once the copies are confirmed: until then an END_TRANSACTION for them would be refused."""
        if not asked:
            return
        now_ms = self._clock.wall_ms()

        def ask(error: StoreError | None) -> None:
            if error is None:
                for half, where in asked:
                    if self._transactions.open.is_open(where[0]):
                        self._ask(half, where, now_ms)

        _, physical_offset, size_bytes = asked[-1][1]
        self._store.when_confirmed(physical_offset + size_bytes, ask)

    def _ask(self, half: HalfMessage, where: Appended, store_timestamp: int) -> None:
        group = half.producer_group or ""
        member = self._member(group, half.target[0] if half.target is not None else "")
        if member is None:
            self._report.unasked(group)
            return
        header, body = check_request(
            half, where, self._config.broker.broker_name, self._store.store_host, store_timestamp
        )
        member.channel.notify(RequestCode.CHECK_TRANSACTION_STATE, header, body)

    def _member(self, group: str, topic: str) -> Member | None:
        """Return the group's next producer, in turn; None if none may be asked."""
        members = [
            member
            for member in self._producers.members(group)
            if not member.channel.is_closed and self._may_ask(member.channel, topic)
        ]
        if not members:
            return None
        self._next_member += 1
        return members[self._next_member % len(members)]
