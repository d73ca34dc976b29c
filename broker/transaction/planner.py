"""Plans of ends of transactions: all rules about which half messages may be ended, and how.

The compiled kernel and the handler have the same plans.  What differs from end to end is checked for the handler alone;
the kernel takes an end only if nothing is to be refused.
Source: RocketMQ 5.3.3, `EndTransactionProcessor`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from broker.core import BrokerCore
from broker.plan.planner import Planner, ServedPlan
from broker.plan.table import MAX_KEPT_CHARS, Refused
from broker.topic.moved_queues import present_place
from broker.transaction.check_rules import is_too_late
from broker.transaction.half_message import COMMIT, TRANSACTION_MASK, HalfMessage
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.queue.logic_queue import LogicQueue

UNKNOWN: Final = 0
ROLLBACK: Final = TRANSACTION_MASK
# No half message has one of these as its real topic.
_NO_TARGETS: Final = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)


class Why(Enum):
    """Why the handler must serve an end."""

    UNKNOWN = "the producer does not know the outcome: nothing ends, and there is no response"
    TARGET = "the half message has no real topic and queue"
    MOVED = "the real queue is one of a static topic, and has moved"
    QUEUE = "the real queue has had no message yet, or is no plain one"


class EndKey(NamedTuple):
    """What the header of an end and its half message say about its plan; `topic` and `queue_id` are the real ones."""

    outcome: int
    topic: str | None
    queue_id: int


@dataclass(frozen=True, slots=True)
class EndPlan(ServedPlan):
    """How ends with one key are served: with `is_commit` the kernel adds the real messages to `queue`."""

    topic: str
    is_commit: bool
    queue: LogicQueue | None
    needs_handler: Why | None
    is_lasting: bool


class EndPlanner(Planner[EndKey, EndPlan]):
    """Planner of ends of transactions."""

    def __init__(self, core: BrokerCore) -> None:
        super().__init__(core.config.plan_version)
        self._static = core.mappings.by_name
        self._config = core.config
        self._store = core.store

    def new_plan(self, key: EndKey) -> EndPlan | Refused:
        topic, is_commit = key.topic or "", key.outcome == COMMIT
        has_target = topic not in ("", *_NO_TARGETS)
        has_moved = present_place(self._static, topic, key.queue_id) != (topic, key.queue_id)
        queue = self._store.plain_queue(topic, key.queue_id) if has_target and not has_moved else None
        # The first message makes the queue, without a rise of the version.
        is_lasting = len(topic) <= MAX_KEPT_CHARS and (queue is not None or not has_target)
        refused = self.refused_outcome(key.outcome)
        if refused is None and is_commit and not has_target:
            refused = _wrong("The prepared message has no real topic and queue")
        if refused is not None:
            return refused._replace(is_lasting=is_lasting)
        why = None
        if key.outcome == UNKNOWN:
            why = Why.UNKNOWN
        elif not has_target:
            why = Why.TARGET
        elif has_moved:
            why = Why.MOVED
        elif queue is None:
            why = Why.QUEUE
        return EndPlan(topic, is_commit, queue, why, is_lasting)

    def refused_outcome(self, outcome: int) -> Refused | None:
        """Return why ends with an outcome are refused, whatever they end."""
        if outcome in (COMMIT, ROLLBACK, UNKNOWN):
            return None
        return Refused(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")

    def refused_half(self, header: EndTransactionRequestHeader, half: HalfMessage, now_ms: int) -> Refused | None:
        """Return why the producer may not end what it found."""
        timeout_ms, record = self._config.broker.transaction_time_out, half.record
        if not header.from_transaction_check and is_too_late(half, timeout_ms, now_ms):
            remark = "the time that CHECK_IMMUNITY_TIME_IN_SECONDS gives is over: the broker asks"
            return Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        if half.producer_group != header.producer_group:
            return _wrong("The producer group wrong")
        if record.queue_offset != header.tran_state_table_offset:
            return _wrong("The transaction state table offset wrong")
        if record.physical_offset != header.commit_log_offset:
            return _wrong("The commit log offset wrong")
        return None


def _wrong(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark, Reason.TRANSACTION_ENDED)


NOT_FOUND: Final = _wrong("Find prepared transaction message failed")
ENDED: Final = _wrong("The transaction has ended already")
