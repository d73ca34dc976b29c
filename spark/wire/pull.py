"""Puller of ranges of queues from brokers: several queues, and several pulls of one queue, in each round trip.

The start of the next pull is guessed before the response to the previous one: the broker usually returns as many
messages as last time.  A response that does not continue its queue is discarded.

Source: RocketMQ 5.3.3, `PullMessageProcessor`, `PullSysFlag`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark.queues.data_loss import LostRange
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange
from spark.wire.cluster import BUSY, Answer, WireCluster
from spark.wire.connection import Asked
from sprocket.client.errors import BrokerRefused
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

logger = logging.getLogger(__name__)

_SUBSCRIPTION: Final = 0x4
_ROUND_PULLS: Final = 32
_ROUND_QUEUES: Final = 8
_MAX_MESSAGES: Final = 1024
# After larger responses no further pull is guessed.
_LARGE_BYTES: Final = 128 * 1024
_PULL_BYTES: Final = 1024 * 1024
# Rounds after which a queue is asked for more messages than it returned last time.
_GROW_ROUNDS: Final = 16
_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 3.0
_KNOWN: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True)
class Subscription:
    """Filter for brokers: `expression` is RocketMQ's subExpression, `kind` its expressionType (TAG or SQL92)."""

    expression: str = "*"
    kind: str = "TAG"

    @property
    def takes_all(self) -> bool:
        return self.kind == "TAG" and self.expression.strip() in ("*", "")

    @property
    def tags(self) -> frozenset[str] | None:
        """The wanted tags, because brokers compare only their hashes."""
        if self.kind != "TAG" or self.takes_all:
            return None
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


@dataclass(frozen=True)
class Pulled:
    """One response with records of `queue` from `begin` to `past` that passed the subscription."""

    queue: QueueId
    begin: int
    past: int
    body: bytes
    address: str


@dataclass
class _RangeProgress:
    """Progress of one range."""

    wanted: QueueRange
    at: int
    step: int = _MAX_MESSAGES  # messages in a pull
    depth: int = 1  # pulls in a round
    rounds: int = 0
    prefer: int = MASTER_ID
    failures: int = 0

    @property
    def is_done(self) -> bool:
        return self.at >= self.wanted.end


@dataclass
class Puller:
    """Puller of ranges of the queues of one broker; calls `on_loss`, which may raise, for lost messages."""

    cluster: WireCluster
    subscription: Subscription
    on_loss: Callable[[list[LostRange]], None]
    _ranges: list[_RangeProgress] = field(default_factory=list)

    def pull(self, broker_name: str, ranges: Sequence[QueueRange]) -> Iterator[Pulled]:
        """Yield the responses for `ranges`, those of one queue in order.

        Raises BrokerRefused, or another ClientError if no member of the broker group responds or makes progress.
        """
        waiting = [_RangeProgress(each, each.begin) for each in ranges if len(each)]
        while waiting or self._ranges:
            while waiting and len(self._ranges) < _ROUND_QUEUES:
                self._ranges.append(waiting.pop(0))
            yield from self._round(broker_name)
            self._ranges = [part for part in self._ranges if not part.is_done]

    def _round(self, broker_name: str) -> Iterator[Pulled]:
        prefer = self._ranges[0].prefer
        together = [part for part in self._ranges if part.prefer == prefer]
        asked: list[tuple[_RangeProgress, int, int]] = []
        for part in together:
            asked += self._guesses(part, _ROUND_PULLS // len(together))
        requests: list[Asked] = [
            (RequestCode.PULL_MESSAGE, self._header(part, at, number)) for part, at, number in asked
        ]
        answers = self.cluster.ask(broker_name, requests, prefer)
        for (part, at, number), answer in zip(asked, answers, strict=True):
            if at == part.at and not part.is_done:
                pulled = self._taken(part, number, answer)
                if pulled is not None:
                    yield pulled
        stuck = max(part.failures for part in together)
        if stuck:
            self.cluster.pause(min(_PAUSE_S * 2 ** (stuck - 1), _MAX_PAUSE_S))

    def _guesses(self, part: _RangeProgress, room: int) -> Iterator[tuple[_RangeProgress, int, int]]:
        """Yield the pulls of a round: (part, offset, messages)."""
        part.rounds += 1
        at = part.at
        for index in range(max(1, min(part.depth, room))):
            if at >= part.wanted.end:
                return
            grows = index == 0 and part.rounds % _GROW_ROUNDS == 0
            number = min(part.step * 4 if grows else part.step, _MAX_MESSAGES, part.wanted.end - at)
            yield part, at, number
            at += part.step

    def _header(self, part: _RangeProgress, at: int, number: int) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self.cluster.settings.group,
            topic=part.wanted.queue.topic,
            queue_id=part.wanted.queue.queue_id,
            queue_offset=at,
            max_msg_nums=number,
            sys_flag=_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self.subscription.expression,
            sub_version=0,
            expression_type=self.subscription.kind,
            max_msg_bytes=_PULL_BYTES,
            lo=False,
        )

    def _taken(self, part: _RangeProgress, number: int, answer: Answer) -> Pulled | None:
        """Advance `part` by the response `answer`."""
        response = answer.response
        if response.code in BUSY:
            self._stuck(part, answer, "is busy")
            return None
        if response.code not in _KNOWN:
            raise BrokerRefused(response.code, response.remark, answer.address)
        told = response.header(PullMessageResponseHeader)
        following = told.next_begin_offset
        queue, begin, end = part.wanted.queue, part.at, part.wanted.end
        if response.code == ResponseCode.SUCCESS and following > begin:
            part.at = following
            part.failures = 0
            part.prefer = told.suggest_which_broker_id
            if self.subscription.takes_all:
                self._adapt(part, number, following - begin, len(response.body))
            return Pulled(queue, begin, min(following, end), response.body, answer.address)
        if following <= begin:
            if response.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND):
                self._short(part, answer, told.max_offset)
            else:
                self._stuck(part, answer, "gives nothing")
            return None
        if response.code == ResponseCode.PULL_OFFSET_MOVED or self.subscription.takes_all:
            self.on_loss([LostRange(queue, begin, min(following, end))])
        part.at = following
        part.failures = 0
        return None

    @staticmethod
    def _adapt(part: _RangeProgress, asked: int, given: int, size_bytes: int) -> None:
        if given < asked and not part.is_done:
            part.step, part.depth = given, 1 if size_bytes > _LARGE_BYTES else _ROUND_PULLS
        elif given > part.step:
            part.step = given
        if size_bytes > _LARGE_BYTES:
            part.depth = 1

    def _short(self, part: _RangeProgress, answer: Answer, max_offset: int) -> None:
        """Handle a queue that ends before the end at the time of the plan."""
        is_master = answer.broker_id == MASTER_ID
        if is_master and part.failures >= 2:
            reason = f"not there: the queue of {answer.address} ends at {max_offset}"
            self.on_loss([LostRange(part.wanted.queue, part.at, part.wanted.end, reason)])
            part.at = part.wanted.end
            return
        self._stuck(part, answer, f"has the queue only up to {max_offset}")

    def _stuck(self, part: _RangeProgress, answer: Answer, reason: str) -> None:
        part.failures += 1
        part.prefer = MASTER_ID
        part.depth = 1
        logger.info("event=pull_stuck queue=%s offset=%d address=%s reason=%r", part.wanted.queue, part.at,
                    answer.address, reason)  # fmt: skip
        if part.failures > self.cluster.settings.retries:
            where = f"({part.wanted.queue} at {part.at}: the broker {reason}; start its master, or read again later)"
            remark = f"{answer.response.remark or ''} {where}".strip()
            raise BrokerRefused(answer.response.code, remark, answer.address)
