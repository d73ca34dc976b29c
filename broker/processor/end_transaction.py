"""Handlers for ends of transactions: END_TRANSACTION commits or rolls back a half message;
RESUME_CHECK_HALF_MESSAGE restarts the checks of a half message that the broker has given up.

The requests of one read are one batch: each is checked, and the valid ones are one append.
Source: RocketMQ 5.3.3, `EndTransactionProcessor`, `AdminBrokerProcessor.resumeCheckHalfMessage`.  Stricter: a
transaction that has ended does not end again, and only a half message that was given up is resumed.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.core import BrokerCore
from broker.message_id import decode_offset_message_id
from broker.plan.table import Refused
from broker.transaction.end_frames import EndFrames
from broker.transaction.planner import ENDED, NOT_FOUND, UNKNOWN, EndKey, EndPlanner
from broker.transaction.transactions import Ending, Transactions
from sprocket.common.errors import ReplicasNotEnough, RequestError, SprocketError, StoreBusy, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC
from sprocket.remoting.refusals import Refusal, refusal_of
from sprocket.remoting.routes import Action, Resource, Route, Traffic

logger = logging.getLogger(__name__)

EndRequest = Request[EndTransactionRequestHeader]


class TransactionProcessor:
    """Handler of both requests.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, transactions: Transactions) -> None:
        self.planner = EndPlanner(core)
        self._transactions = transactions
        self._waits = core.waits
        self._clock = core.clock

    def routes(self) -> list[Route]:
        ends = Route(
            RequestCode.END_TRANSACTION, EndTransactionRequestHeader, None, Resource.TOPIC, Action.PUB, Traffic.SEND,
            batch=self.end,
        )  # fmt: skip
        return [
            replace(ends, frames=EndFrames.of(self._transactions, self.planner, self._waits, ends, _refuse_all)),
            Route(
                RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader, self.resume,
                Resource.TOPIC, Action.UPDATE,
            ),
        ]  # fmt: skip

    def end(self, run: list[EndRequest]) -> None:
        """End the transactions of one read; a request with unknown outcome gets no response."""
        good: list[tuple[EndRequest, Ending]] = []
        claimed: set[int] = set()
        for request in run:
            try:
                ending = self._ending(request, claimed)
            except Exception as error:  # any error: the other requests of the read are still served
                _refuse_all([request], error)
                continue
            if ending is None:
                peer_lines.info(
                    logger, request.channel.peer,
                    "event=transaction_unknown group=%s msg_id=%s from_check=%s remark=%r",
                    request.header.producer_group, request.header.msg_id, request.header.from_transaction_check,
                    request.remark,
                )  # fmt: skip
            else:
                claimed.add(ending.open_at)
                good.append((request, ending))
        self._store(good)

    def _ending(self, request: EndRequest, claimed: set[int]) -> Ending | None:
        header, planner = request.header, self.planner
        outcome = header.commit_or_rollback
        _require(request, planner.refused_outcome(outcome))
        if outcome == UNKNOWN:
            return None
        half = self._transactions.half_in_queue(header.tran_state_table_offset, header.commit_log_offset)
        if half is None:
            raise NOT_FOUND.error(request.channel.peer)
        if half.target is not None:
            require_topic(request, half.target[0], AuthAction.PUB)  # not the topic in the header, which may differ
        _require(request, planner.refused_half(header, half, self._clock.wall_ms()))
        open_at = self._transactions.open_at(half)
        if open_at is None or open_at in claimed:
            raise ENDED.error(request.channel.peer)
        plan = planner.plan(EndKey(outcome, *(half.target or (None, 0))))
        if isinstance(plan, Refused):
            raise plan.error(request.channel.peer)
        return Ending(half, open_at, plan.is_commit)

    def _store(self, good: list[tuple[EndRequest, Ending]]) -> None:
        if not good:
            return
        try:
            end_offset = self._transactions.end([ending for _, ending in good])
        except RequestError as error:
            if len(good) == 1:
                _refuse(good[0][0], error)
                return
            # The store appends all or none: append one by one to find the one that it refuses.
            for one in good:
                self._store([one])
            return
        except StoreError as error:
            _refuse_all([request for request, _ in good], error)
            return
        waiting = [request for request, _ in good if not request.is_oneway]
        if waiting:
            self._answer(waiting, end_offset)

    def resume(self, request: Request[ResumeCheckHalfMessageRequestHeader]) -> None:
        """Copy a message of TRANS_CHECK_MAX_TIME_TOPIC back to the half topic, so that its checks start again."""
        msg_id = request.header.msg_id or ""
        try:
            _, physical_offset = decode_offset_message_id(msg_id)
            half = self._transactions.given_up_at(physical_offset)
        except (ValueError, StoreError):
            half = None
        if half is None or half.target is None:
            remark = f"message {msg_id} is none of {TRANS_CHECK_MAX_TIME_TOPIC} on this broker"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        require_topic(request, half.target[0], AuthAction.UPDATE)
        end_offset = self._transactions.resume(half)
        peer_lines.info(logger, "", "event=transaction_resumed topic=%s unique_key=%s", half.target[0], half.unique_key)
        self._answer([request], end_offset)

    def _answer(self, waiting: Sequence[Request[Any]], end_offset: int) -> None:
        def answer(error: StoreError | None, code: ResponseCode) -> None:
            # With any code the end is stored, and a retry would be refused.
            for request in waiting:
                if error is None:
                    request.channel.reply(request, Response())
                else:
                    request.channel.reply(request, _refusal(error))

        self._waits.wait(end_offset, answer)


def _require(request: EndRequest, refused: Refused | None) -> None:
    if refused is not None:
        raise refused.error(request.channel.peer)


def _refuse_all(requests: Sequence[EndRequest], error: Exception) -> None:
    for request in requests:
        if isinstance(error, (RequestError, StoreError)):
            _refuse(request, error)
        else:
            request.channel.refuse(request, error)


def _refuse(request: EndRequest, error: SprocketError) -> None:
    header = request.header
    peer_lines.warning(
        logger, request.channel.peer, "event=end_of_transaction_refused group=%s msg_id=%s queue_offset=%d reason=%r",
        header.producer_group, header.msg_id, header.tran_state_table_offset, str(error),
    )  # fmt: skip
    request.channel.reply(request, _refusal(error))


def _refusal(error: SprocketError) -> Refusal:
    if isinstance(error, RequestError):
        return refusal_of(error)
    reason = error.refusal_reason
    if isinstance(error, StoreBusy) and not isinstance(error, ReplicasNotEnough):
        return Refusal(ResponseCode.SYSTEM_BUSY, f"broker busy: {error}", reason=reason)
    return Refusal(ResponseCode.SYSTEM_ERROR, str(error), reason=reason)
