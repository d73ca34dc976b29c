"""POP_MESSAGE: messages of a topic for a group, which are then invisible to the other members for a while.

The pops of one read are served together: their checkpoints are one append, and each pop is answered when that append is
safe (`PopEnd`).
Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `popMsgFromTopic`.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from broker.core import BrokerCore
from broker.longpolling.held_pops import HeldPops, HoldResult
from broker.longpolling.held_pulls import PullFilter
from broker.longpolling.quota_reads import Verdict, charge_found
from broker.plan.table import Refused
from broker.pop.planner import PopPlan, PopPlanner, Why
from broker.pop.pop_draws import PopDraws, is_retry_first, scan
from broker.pop.pop_end import PopEnd
from broker.pop.popped import Popped
from broker.pop.queue_pop import QueuePop
from broker.pop.revive.revive_log import ReviveLog
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import PopMessageRequestHeader


class PopProcessor:
    """Handler of pops.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        planner: PopPlanner,
        queues: QueuePop,
        draws: PopDraws,
        end: PopEnd,
        log: ReviveLog,
    ) -> None:
        self._clock = core.clock
        self._flow = core.flow
        self._planner = planner
        self._assumed = core.consumers.assumed
        self._queues = queues
        self._draws = draws
        self._end = end
        self._log = log
        self._quotas = core.quota_reads
        self.held = HeldPops(core.config, core.store, core.clock, core.call_later, self.answer_held, self._quotas.looks)

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
                plan = self._plan(request, may_hold=may_hold)
                if plan is None:
                    continue
                popped = self._take(request, plan)
            except Exception as error:
                request.channel.refuse(request, error)
                continue
            if popped.count:
                found.append(popped)
            else:
                self._answer_empty(popped, plan.matches, may_hold=may_hold)
        if found:
            self._finish(found)

    # Pop messages

    def _plan(self, request: Request[PopMessageRequestHeader], *, may_hold: bool) -> PopPlan | None:
        """Return the plan of a pop, or None if a quota is used up.

        The pop then waits.  If it has waited for its whole poll time, it is answered without messages.
        """
        header, now_ms = request.header, self._clock.wall_ms()
        header.born_time = header.born_time or now_ms
        plan = self._planner.admit(header, now_ms)
        self._quotas.planned(request.channel)
        if isinstance(plan, Refused):
            raise plan.error(request.channel.peer)
        buckets = self._quotas.of(plan.buckets, request.channel)
        if not buckets:
            return plan
        again, max_s = partial(self.answer_held, may_hold=may_hold), max(header.poll_time, 0) / 1000
        verdict = self._quotas.admit(buckets, request, max_s, again, is_new=may_hold)
        if verdict is Verdict.EMPTY:
            Popped(request, now_ms, 0).answer(ResponseCode.POLLING_TIMEOUT)
        return plan if verdict is Verdict.SERVE else None

    def _take(self, request: Request[PopMessageRequestHeader], plan: PopPlan) -> Popped:
        now_ms = self._clock.wall_ms()
        self._assumed.note(plan.group, *plan.subscriptions)
        draw, revive_queue_id = self._draws.take(is_ordered=bool(request.header.order))
        popped = Popped(request, now_ms, revive_queue_id)
        try:
            with nullcontext() if plan.needs_handler is not Why.SQL else self._quotas.work_of(request.channel):
                self._look_into_queues(popped, plan, draw)
        except BaseException:
            self._end.take_back(popped.taken)
            raise
        if popped.count:
            charge_found(self._quotas.of(plan.buckets, request.channel), popped.count, popped.size_bytes)
        return popped

    def _look_into_queues(self, popped: Popped, plan: PopPlan, draw: int) -> None:
        header = popped.request.header
        retry_first = is_retry_first(plan, draw)
        if retry_first and not popped.is_ordered:
            self._take_retry(popped, plan, draw)
        if header.queue_id < 0:
            self._take_all(popped, plan, plan.topic, plan.queue_count, draw, is_retry=False)
        else:
            self._queues.take(popped, header.topic, header.queue_id, plan.matches, is_retry=False)
        if not retry_first and popped.room > 0 and not popped.is_ordered:
            self._take_retry(popped, plan, draw)

    def _take_retry(self, popped: Popped, plan: PopPlan, draw: int) -> None:
        config = self._draws.retry_topic(plan, draw)
        if config is not None:
            self._take_all(popped, plan, config.topic_name, config.read_queue_nums, draw, is_retry=True)

    def _take_all(self, popped: Popped, plan: PopPlan, topic: str, count: int, draw: int, *, is_retry: bool) -> None:
        for queue_id in scan(plan, draw, count):
            self._queues.take(popped, topic, queue_id, plan.matches, is_retry=is_retry)

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
        pops = _Found(self, found)
        if not messages:
            self.answer(found)
        elif self._log.is_elsewhere:
            self._end.send(pops, messages)
        else:
            self._end.write(pops, lambda: self._log.append(messages, len(messages)))

    def answer(self, found: Sequence[Popped]) -> None:
        """Answer pops that found messages."""
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


class _Found:
    """The pops of one read that found messages."""

    def __init__(self, owner: PopProcessor, found: Sequence[Popped]) -> None:
        self._owner = owner
        self._found = found
        self.taken = [taken for popped in found for taken in popped.taken]

    def answer(self, *, was_later: bool) -> None:
        """Send the responses."""
        self._owner.answer(self._found)

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse each pop."""
        for popped in self._found:
            popped.request.channel.refuse(popped.request, error)
