"""POP_MESSAGE: messages of a topic for a group, which are then invisible to the other members for a while.

The pops of one read are served together: their checkpoints are one append, and each pop is answered when that append is
safe.  Then the offsets are committed (`PopOffsets`).
Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `popMsgFromTopic`.
"""

from collections.abc import Iterable
from typing import Any, Final

from broker.core import BrokerCore
from broker.longpolling.held_pops import HeldPops, HoldResult
from broker.longpolling.held_pulls import PullFilter
from broker.pop.pop_checks import PopChecks
from broker.pop.pop_filters import PopFilters
from broker.pop.pop_offsets import FROM_FIRST, PopOffsets
from broker.pop.popped import Popped
from broker.pop.queue_pop import QueuePop
from broker.pop.retry_topics import retry_topic, retry_topic_v2
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE

_BEFORE_CHECKPOINT: Final = failpoint("pop.before_checkpoint")
_CHECKPOINT_WRITTEN: Final = failpoint("pop.checkpoint_written")
_COMMITTED: Final = failpoint("pop.committed")


class PopProcessor:
    """Handler of pops.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        checks: PopChecks,
        filters: PopFilters,
        queues: QueuePop,
        offsets: PopOffsets,
        log: ReviveLog,
    ) -> None:
        self._config = core.config
        self._clock = core.clock
        self._topics = core.topics
        self._random_below = core.random_below
        self._waits = core.waits
        self._store = core.store
        self._flow = core.flow
        self._checks = checks
        self._filters = filters
        self._queues = queues
        self._offsets = offsets
        self._log = log
        self._next_revive_queue = 0
        self.held = HeldPops(core.config, core.store, core.clock, core.call_later, self.answer_held)

    def pop(self, run: list[Request[Any]]) -> None:
        """Process the pops of one read."""
        self._serve(run, may_hold=True)

    def answer_held(self, request: Request[Any], may_hold: bool) -> None:
        """Answer a held pop with what there is now.  Never raises, because other pops are answered after it."""
        self._serve([request], may_hold=may_hold)

    def _serve(self, run: Iterable[Request[PopMessageRequestHeader]], *, may_hold: bool) -> None:
        found: list[Popped] = []
        for request in run:
            try:
                popped, matches = self._take(request)
            except Exception as error:
                request.channel.refuse(request, error)
                continue
            if popped.count:
                found.append(popped)
            else:
                self._answer_empty(popped, matches, may_hold=may_hold)
        if found:
            self._finish(found)

    # Pop messages

    def _take(self, request: Request[PopMessageRequestHeader]) -> tuple[Popped, PullFilter | None]:
        config = self._checks.pop(request)
        matches = self._filters.of(request.header)
        popped = Popped(request, self._clock.wall_ms(), self._revive_queue(request.header))
        try:
            self._look_into_queues(popped, config, matches)
        except BaseException:
            self._take_back(popped)
            raise
        return popped, matches

    def _look_into_queues(self, popped: Popped, config: TopicConfig, matches: PullFilter | None) -> None:
        header = popped.request.header
        draw = self._random_below(100)
        is_retry_first = draw < self._config.broker.pop_from_retry_probability
        if is_retry_first and not popped.is_ordered:
            self._take_retry(popped, draw, matches)
        if header.queue_id < 0:
            self._take_all(popped, config, draw, matches, is_retry=False)
        else:
            self._queues.take(popped, header.topic, header.queue_id, matches, is_retry=False)
        if not is_retry_first and popped.room > 0 and not popped.is_ordered:
            self._take_retry(popped, draw, matches)

    def _revive_queue(self, header: PopMessageRequestHeader) -> int:
        if header.order:
            return ORDER_REVIVE_QUEUE
        queue_id = self._next_revive_queue % self._log.queue_count
        self._next_revive_queue = queue_id + 1
        return queue_id

    def _take_retry(self, popped: Popped, draw: int, matches: PullFilter | None) -> None:
        """Pop from one retry topic only, because a response cannot distinguish two retry topics."""
        broker, header = self._config.broker, popped.request.header
        is_v2 = broker.enable_retry_topic_v2
        if draw % 2 == 0:
            if is_v2 and broker.retrieve_message_from_pop_retry_topic_v1:
                is_v2 = False
            elif not is_v2:
                is_v2 = self._has_left(retry_topic_v2(header.topic, header.consumer_group), header.consumer_group)
        config = self._topics.get(retry_topic(header.topic, header.consumer_group, is_v2))
        if config is not None:
            self._take_all(popped, config, draw, matches, is_retry=True)

    def _has_left(self, topic: str, group: str) -> bool:
        """Whether a V2 retry topic has messages, without enableRetryTopicV2; RocketMQ does not deliver these."""
        config = self._topics.get(topic)
        return config is not None and any(
            self._store.max_offset(topic, queue_id) > self._offsets.current(topic, group, queue_id, FROM_FIRST)
            for queue_id in range(config.read_queue_nums)
        )

    def _take_all(
        self, popped: Popped, config: TopicConfig, draw: int, matches: PullFilter | None, *, is_retry: bool
    ) -> None:
        count = config.read_queue_nums
        queue_ids = [(draw + number) % count for number in range(count)]
        self._queues.take_from_all(popped, config.topic_name, queue_ids, matches, is_retry=is_retry)

    # Respond

    def _answer_empty(self, popped: Popped, matches: PullFilter | None, *, may_hold: bool) -> None:
        request = popped.request
        if popped.damage is not None:
            request.channel.refuse(request, popped.damage)
            return
        header, result = request.header, HoldResult.NOT_HELD
        if may_hold:
            result = self.held.hold(
                request, header.topic, header.consumer_group, header.queue_id, matches, header.poll_time,
                header.born_time,
            )  # fmt: skip
        if result is HoldResult.HELD:
            if popped.is_cut_short:
                self._wake(popped)
            return
        popped.answer(ResponseCode.POLLING_FULL if result is HoldResult.FULL else ResponseCode.POLLING_TIMEOUT)

    def _wake(self, popped: Popped) -> None:
        """Wake another held pop, because messages are left."""
        header = popped.request.header
        self.held.wake(header.topic, header.consumer_group, header.queue_id)

    def _finish(self, found: list[Popped]) -> None:
        """Write the checkpoints, then respond."""
        messages = [message for popped in found for message in popped.checkpoints]
        if not messages:
            self._answer(found)
            return
        _BEFORE_CHECKPOINT()
        try:
            if self._log.is_elsewhere:
                self._log.send(messages, lambda: self._written(found))
                return
            end = self._log.append(messages, len(messages))
        except Exception as error:  # any error: release the popped messages for other members
            self._release(found, error)
            return
        _CHECKPOINT_WRITTEN()
        if not self._waits.is_needed:
            self._written(found)
            return
        # Commit also if the append becomes safe after the client's timeout.
        self._store.when_confirmed(end, lambda error: self._commit(found) if error is None else None)
        if self._config.broker.append_ck_async:
            self._answer(found)
            return

        def stored(error: StoreError | None, code: ResponseCode) -> None:
            # With any code the checkpoints are stored.
            if error is None:
                self._answer(found)
            else:
                for popped in found:
                    popped.request.channel.refuse(popped.request, error)

        self._waits.wait(end, stored)

    def _written(self, found: list[Popped]) -> None:
        self._commit(found)
        self._answer(found)

    def _commit(self, found: list[Popped]) -> None:
        for popped in found:
            for taken in popped.taken:
                self._offsets.safe(taken)
        _COMMITTED()

    def _release(self, found: list[Popped], error: Exception) -> None:
        """Make the messages available again, because no checkpoint was written."""
        for popped in reversed(found):
            self._take_back(popped)
        for popped in found:
            popped.request.channel.refuse(popped.request, error)

    def _take_back(self, popped: Popped) -> None:
        for taken in reversed(popped.taken):
            self._queues.undo(taken)

    def _answer(self, found: list[Popped]) -> None:
        for popped in found:
            self._count(popped)
            popped.answer(ResponseCode.SUCCESS)
        for popped in found:
            if popped.rest > 0:
                self._wake(popped)

    def _count(self, popped: Popped) -> None:
        """Count what a pop delivers; retries and others of one pop share its bytes by their number."""
        header, count = popped.request.header, popped.count
        retries = sum(taken.messages for taken in popped.taken if taken.topic != header.topic)
        retry_bytes = popped.size_bytes * retries // count if count else 0
        if retries:
            self._flow.delivered(header.topic, header.consumer_group, retries, retry_bytes, "true")
        if count > retries:
            rest_bytes = popped.size_bytes - retry_bytes
            self._flow.delivered(header.topic, header.consumer_group, count - retries, rest_bytes, "false")
