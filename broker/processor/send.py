"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

The sends of one read are one batch: each is checked, the valid ones are one append, and their responses are one write.
An invalid send is refused without affecting the others.
Source: RocketMQ 5.3.3, `SendMessageProcessor`, `AbstractSendMessageProcessor`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from broker.core import BrokerCore
from broker.longpolling.confirm_waits import Answer
from broker.message_id import host_bytes
from broker.quota.bucket import Buckets
from broker.send.idempotent_sends import IdempotentSends
from broker.send.intake import MessageIntake, require_key
from broker.send.planner import RETRY_MARK, SendPlan, SendPlanner
from broker.send.replies import Appended, SendReplies, Sent
from broker.send.send_frames import SendFrames, send_kernel
from broker.send.send_kinds import holds_mark, is_plain
from broker.timer.recall_handle import handle_of
from sprocket.common.errors import NoLease, RequestError, StoreError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Channel, Request
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from sprocket.remoting.message.properties import (
    EXPECTED_OFFSET,
    IDEMPOTENCE_ID,
    INNER_MULTI_DISPATCH,
    LITE_TOPIC,
    find_last,
    parse,
)
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from store.queue.inner_batch import message_count
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
_SLOW_FLAGS: Final = _INNER_BATCH | RETRY_MARK
_SPECIAL_FLAGS: Final = int(SysFlag.TRANSACTION_ROLLBACK) | _SLOW_FLAGS
# The first message of a queue creates its file, which takes up to a millisecond.  Sends that begin so many are enough
# for one turn.
_ENOUGH_NEW_QUEUES: Final = 8


class SendProcessor:
    """Handler of sends.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, planner: SendPlanner, intake: MessageIntake) -> None:
        self._core = core
        self._config = core.config
        self._idempotent = IdempotentSends(core)
        self._store = core.store
        self.planner = planner
        self._intake = intake
        self._waits = core.waits
        self._flow = core.flow
        self._frames: SendFrames | None = None  # with the compiled engine, once there are routes

    @property
    def _replies(self) -> SendReplies:
        return self.planner.form().replies

    def routes(self) -> list[Route]:
        """The routes of this processor."""
        v1, v2 = SendMessageRequestHeader, SendMessageRequestHeaderV2
        routes = [
            Route(code, header, None, Resource.TOPIC, Action.PUB, Traffic.SEND, batch=self.send)
            for code, header in (
                (RequestCode.SEND_MESSAGE, v1),
                (RequestCode.SEND_MESSAGE_V2, v2),
                (RequestCode.SEND_BATCH_MESSAGE, v2),
            )
        ]
        kernel = send_kernel(routes[:2], self.planner)
        if kernel is None:
            return routes
        frames = self._frames = SendFrames(
            self._core, self.planner, self._intake.timer, routes[:2], self._refuse, self.send, kernel
        )
        return [*(replace(route, frames=frames.handler(int(route.code))) for route in routes[:2]), *routes[2:]]

    def send(self, run: list[Request[Any]], *, is_charged: bool = False) -> None:
        """Store and respond to sends of one read, all of one channel.  Takes those off `run` that must wait.

        Those that are charged already are charged no more.
        """
        if not self._waits.may_acknowledge:
            self._refuse(run, NoLease())
            return
        self._store_and_answer(run, is_charged)

    def _send_held(self, request: Request[Any]) -> None:
        """Serve a send that waited for the window of ids, from its beginning; it was charged before."""
        try:
            self.send([request], is_charged=True)
        except Exception as error:
            if not request.is_answered:
                self._refuse([request], error)

    def _store_and_answer(self, run: list[Request[Any]], is_charged: bool) -> None:
        channel: Channel = run[0].channel
        peer, born_host = channel.peer, host_bytes(*channel.peer)
        messages: list[PendingMessage] = []
        sent: list[Sent] = []
        suffix, admit = self.planner.form().suffix, self.planner.admit
        callers, is_shared = None if is_charged else self.planner.callers(run[0].channel), len(run) > 1
        may_differ, may_enter_light = self._marks(run)
        # Queues of messages so far, and those that begin.
        queues: set[tuple[str, int]] = set()
        new: set[tuple[str, int]] = set()
        # Written for speed: the messages of plain sends are made here, the others by `MessageIntake`.
        taken = 0
        for request in run:
            if len(new) >= _ENOUGH_NEW_QUEUES:
                break
            taken += 1
            header = request.header
            try:
                plan = admit(header, peer)
                topic, queue_id, text = plan.topic, plan.queue_id, header.properties
                if plan.limits is not None:
                    plan.limits.check(text, len(request.body), is_batch=bool(header.batch))
                if header.batch:
                    # Sends that arrived before it must be in the log before it.
                    messages, sent = self._append_first(channel, messages, sent)
                    self._send_batch(request, plan, born_host, callers, new)
                    continue
                if callers is not None and (plan.buckets or callers):
                    self.planner.spend(plan, callers, request)
                if plan.needs_key:
                    require_key((text or "").encode("utf-8", "replace"))
                key, handle = b"", b""
                sys_flag = header.sys_flag | plan.flags
                if text and request.body and not (sys_flag & _SPECIAL_FLAGS or (may_differ and not is_plain(text))):
                    properties = (text if text[-1] == "\x02" else text + "\x02").encode() + suffix
                    key, code = self._key_and_code(properties)
                    message = PendingMessage(
                        topic, queue_id, request.body, properties, code, header.flag, sys_flag,
                        header.born_timestamp, born_host, header.reconsume_times or 0,
                    )  # fmt: skip
                if not key:
                    message, key, handle = self._uncommon(request, plan, born_host)
                    # Its priority may have chosen it.
                    queue_id = message.queue_id if message.topic == topic else queue_id
                    if IDEMPOTENCE_ID in (text or "") and self._idempotent.takes(message, plan):
                        messages, sent = self._append_first(channel, messages, sent)
                        new.update(self._store.new_queues((message.topic, message.queue_id), [message]))
                        self._send_once(request, topic, [message])
                        continue
                # The header may name another queue: a logical one, or none if the broker chooses.
                if is_shared and ((queue := (message.topic, message.queue_id)) not in queues or may_enter_light):
                    queues.add(queue)
                    new.update(self._store.new_queues(queue, [message]))
                messages.append(message)
                sent.append((request, queue_id if plan.logical_id is None else plan.logical_id, key, handle))
            except Exception as error:  # any error: the other sends of the read are still served
                self._refuse([request], error)
        del run[taken:]
        self._append(channel, messages, sent)

    def _marks(self, run: list[Request[Any]]) -> tuple[bool, bool]:
        """Return whether a send may need more than plain ones, and whether one may enter light queues."""
        # One search for all sends: five searches per send would take longer than decoding its header.
        texts = "".join([request.header.properties or "" for request in run])
        has_light = self._config.store.enable_multi_dispatch
        may_enter_light = has_light and (INNER_MULTI_DISPATCH in texts or LITE_TOPIC in texts)
        return len(run) == 1 or holds_mark(texts), may_enter_light

    def _key_and_code(self, properties: bytes) -> tuple[bytes, int]:
        """Return the unique key of plain properties, empty if it is not found at once, and the code of their tags."""
        at = properties.rfind(b"UNIQ_KEY\x01")
        if at < 0 or (at > 0 and properties[at - 1] != 2):
            return b"", 0
        # Most keys have 32 digits.  The broker's properties follow: the index is within bounds.
        end = at + 41 if properties[at + 41] == 2 else properties.find(b"\x02", at)
        key = properties[at + 9 : end]
        at = properties.rfind(b"TAGS\x01")
        tag = properties[at + 5 : properties.find(b"\x02", at)] if at >= 0 else b""
        if at > 0 and (properties[at - 1] != 2 or not tag):
            tag = find_last(properties, b"TAGS\x01") or b""
        return key, self._intake.tags_codes.of_tag(tag)

    def _uncommon(self, request: Request[Any], plan: SendPlan, born_host: bytes) -> tuple[PendingMessage, bytes, bytes]:
        """Return the message of a request that is no batch, its unique key, and its recall handle or nothing."""
        message, key = self._intake.message(request, plan, born_host)
        handle = None
        if message.topic == TIMER_TOPIC:
            handle = handle_of(message.properties, self._config.broker.broker_name, key)
        return message, key, handle or b""

    # Append and respond

    def _append_first(
        self, channel: Channel, messages: list[PendingMessage], sent: list[Sent]
    ) -> tuple[list[PendingMessage], list[Sent]]:
        """Append what came before a send that is stored by itself; return the empty lists for what follows it."""
        self._append(channel, messages, sent)
        return [], []

    def _append(self, channel: Channel, messages: list[PendingMessage], sent: list[Sent]) -> None:
        if not messages:
            return
        try:
            appended = self._store.append(messages)
        except RequestError as error:
            if len(messages) == 1:
                refusal = RequestError(
                    error.code, f"{self._intake.illegal_remark} {error.remark}", error.refusal_reason
                )
                self._refuse([sent[0][0]], refusal)
                return
            # The store appends all or none: append one by one to find the one that it refuses.
            for message, one in zip(messages, sent, strict=True):
                self._append(channel, [message], [one])
            return
        except Exception as error:
            self._refuse([one[0] for one in sent], error)
            return
        try:
            self._flow.stored(messages, appended)
            if self.planner.has_static:
                appended = self._shown(sent, appended)
            if self._waits.is_needed:
                self._answer_stored(channel, messages, sent, appended)
            else:
                channel.answer_run([one[0] for one in sent], self._replies.frames(sent, appended))
        except Exception as error:  # a bug, for which no other send of the read is refused
            self._refuse([one[0] for one in sent if not one[0].is_answered], error)

    def _shown(self, sent: list[Sent], appended: list[Appended]) -> list[Appended]:
        """Return `appended` with the offsets that the responses name."""
        shown = self.planner.shown_offset
        return [
            (shown(request.header.topic, queue_id, offset), physical_offset, size)
            for (request, queue_id, _, _), (offset, physical_offset, size) in zip(sent, appended, strict=True)
        ]

    def _answer_stored(
        self, channel: Channel, messages: list[PendingMessage], sent: list[Sent], appended: list[Appended]
    ) -> None:
        """Respond when the messages are safe (SYNC_FLUSH, SYNC_MASTER); at once to sends with WAIT=false."""
        hasty = [find_last(message.properties, b"WAIT\x01") == b"false" for message in messages]
        if any(hasty) and self._waits.may_acknowledge:
            chosen = [index for index, is_hasty in enumerate(hasty) if is_hasty]
            frames = self._replies.frames([sent[i] for i in chosen], [appended[i] for i in chosen])
            channel.answer_run([sent[i][0] for i in chosen], frames)
            chosen = [index for index, is_hasty in enumerate(hasty) if not is_hasty]
            rest, rest_appended = [sent[i] for i in chosen], [appended[i] for i in chosen]
        else:
            rest, rest_appended = sent, appended

        ready: list[bytes] = []

        def prepare() -> None:
            ready.append(self._replies.frames(rest, rest_appended))

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            if error is not None:
                self._refuse([one[0] for one in rest], error)
                return
            is_ready = ready and code == ResponseCode.SUCCESS
            frames = ready[0] if is_ready else self._replies.frames(rest, rest_appended, code)
            channel.answer_run([one[0] for one in rest], frames, code)

        self._wait(appended, answer, prepare)

    def _wait(self, appended: list[Appended], answer: Answer, prepare: Callable[[], None] | None = None) -> None:
        _, physical_offset, size = appended[-1]
        self._waits.wait(physical_offset + size, answer, prepare)

    def _send_batch(
        self, request: Request[Any], plan: SendPlan, born_host: bytes, callers: Buckets | None,
        new: set[tuple[str, int]],
    ) -> None:  # fmt: skip
        """Store the messages of one batch request, all or none; add the queues that they begin to `new`.

        `callers` are None if it was charged before.
        """
        frames = self._frames
        batch = self._intake.batch(request, plan, born_host, None if frames is None else frames.batch)
        messages, records, key, queue_id = batch.messages, batch.records, batch.unique_key, plan.reported_queue_id
        if callers is not None and (plan.buckets or callers):
            self.planner.spend(plan, callers, request, batch.message_count)
        new.update(self._store.new_queues((plan.topic, plan.queue_id), messages))
        expects_offset = EXPECTED_OFFSET in (request.header.properties or "")
        if batch.have_ids and self._idempotent.takes_any(messages, plan):
            if expects_offset:
                remark = f"{EXPECTED_OFFSET} and {IDEMPOTENCE_ID} exclude each other: send one of them."
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
            self._send_once(request, plan.topic, messages, key)
            return
        if expects_offset:
            self._check_offset(request, plan)
        kept_as_one = not records and messages[0].sys_flag & _INNER_BATCH != 0
        if records is not None and frames is not None:
            end_offset, queue_offset, ids = frames.append_batch(records)
        else:
            end_offset, queue_offset, ids = self._append_batch(request, messages, queue_id)

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            if error is not None:
                self._refuse([request], error)
            elif request.wants_answer:
                frame = self._replies.batch_frame(
                    request, code, queue_id, key, queue_offset, ids, kept_as_one=kept_as_one
                )
                request.channel.answer(request, frame, code=code)

        self._waits.wait(end_offset, answer)

    def _append_batch(
        self, request: Request[Any], messages: list[PendingMessage], queue_id: int
    ) -> tuple[int, int, str]:
        """Append a batch; return where it ends in the log, the queue offset that its response names, and its ids."""
        appended = self._store.append(messages)
        self._flow.stored(messages, appended)
        if messages[0].sys_flag & _INNER_BATCH:
            self._flow.stored_as_one(messages[0], message_count(messages[0].properties))
        _, physical_offset, size = appended[-1]
        queue_offset = self.planner.shown_offset(request.header.topic, queue_id, appended[0][0])
        return physical_offset + size, queue_offset, self._replies.ids([one for _, one, _ in appended])

    def _check_offset(self, request: Request[Any], plan: SendPlan) -> None:
        """Raise RequestError unless the next message of the queue gets the offset that the batch names."""
        if plan.keeps_batches or plan.logical_id is not None:
            remark = f"{EXPECTED_OFFSET} is for queues of type SimpleCQ that are not logical: send without it."
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        wanted = parse(request.header.properties).get(EXPECTED_OFFSET, "")
        ends_at = self._store.next_offset(plan.topic, plan.queue_id)
        if wanted != str(ends_at):
            remark = f"The queue ends at offset {ends_at}, and the batch was for {wanted[:20]}: nothing was stored."
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, remark)

    def _send_once(
        self, request: Request[Any], topic: str, messages: list[PendingMessage], batch_key: str | None = None
    ) -> None:
        """Store messages with an id, unless the broker already has them."""
        refuse = partial(self._refuse, [request])
        if self._idempotent.held(partial(self._send_held, request), refuse):
            return
        try:
            self._idempotent.send(request, topic, messages, self._replies, refuse, self.planner.shown_place, batch_key)
        except RequestError as error:
            raise RequestError(
                error.code, f"{self._intake.illegal_remark} {error.remark}", error.refusal_reason
            ) from error

    def _refuse(self, requests: Sequence[Request[Any]], error: Exception) -> None:
        if not isinstance(error, RequestError | StoreError):
            # A bug: the channel logs it.
            for request in requests:
                request.channel.refuse(request, error)
            return
        response = self._replies.refusal(error)
        for request in requests:
            request.channel.reply(request, response)
