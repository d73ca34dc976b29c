"""Sends of messages with an id: a message that the broker already has is answered, and not stored again.

Such a message is appended by itself, before the next one is looked up, so two sends of one read cannot both be new.
The answer to a duplicate waits for disk and slaves as the answer to the first message does: until its own end is safe.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.core import BrokerCore
from broker.idempotence.id_window import FirstSend
from broker.idempotence.log_ids import MAX_ID_BYTES, NAME, UNIQUE_KEY_NAME, WAITING_TOPICS, first_send
from broker.send.planner import SendPlan
from broker.send.replies import SendReplies
from broker.timer.recall_handle import handle_text
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, WAIT, encoded_name, find_last
from store.record.record import PendingMessage

_HASTY: Final = encoded_name(WAIT)
# Refuses a request.
Refuse = Callable[[Exception], None]
# Serves a request again from its beginning.
Again = Callable[[], object]
# Topic, queue and queue offset of a stored message -> queue and offset that the response names.
ShownPlace = Callable[[str, int, int], tuple[int, int]]


class IdempotentSends:
    """Sender of messages with an id.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._ids = core.ids
        self._store = core.store
        self._waits = core.waits
        self._clock = core.clock
        self._flow = core.flow

    def takes(self, message: PendingMessage, plan: SendPlan) -> bool:
        """Return whether `message`, which was sent to the topic of `plan`, must go through the window.

        Raises RequestError for a message that has an id and may not.  What a consumer returns to a retry topic has the
        id of the original, and is not a duplicate of it.
        """
        if not self._ids.is_on or plan.is_retry or plan.keeps_batches:
            return False
        if not find_last(message.properties, NAME):
            return False
        if message.topic != plan.topic and message.topic not in WAITING_TOPICS:
            raise _illegal("a message of a transaction cannot have it; send the message without it")
        for name in (NAME, UNIQUE_KEY_NAME):
            if len(find_last(message.properties, name) or b"") > MAX_ID_BYTES:
                raise _illegal(f"it and UNIQ_KEY have at most {MAX_ID_BYTES} bytes; choose a shorter id")
        return True

    def takes_any(self, messages: Sequence[PendingMessage], plan: SendPlan) -> bool:
        """Return whether a batch must go through the window.  Raises as `takes` for each message."""
        return True in {self.takes(message, plan) for message in messages}

    def held(self, again: Again, refuse: Refuse) -> bool:
        """Return whether the request was put off: later `again` or `refuse` is called.  Raises StoreBusy."""
        if self._ids.is_ready:
            return False

        def ready(error: StoreError | None) -> None:
            if error is None:
                again()
            else:
                refuse(error)

        self._ids.hold(ready)
        return True

    def send(
        self,
        request: Request[Any],
        topic: str,
        messages: Sequence[PendingMessage],
        replies: SendReplies,
        refuse: Refuse,
        shown_place: ShownPlace,
        batch_key: str | None = None,
    ) -> None:
        """Store those of `messages` that are new, all or none, and answer with the places of the first ones.

        They were sent to `topic`; a delayed one is stored elsewhere.  `shown_place` returns what the response
        says of a place.  `batch_key` is the unique key of a batch; None for a single message.

        Raises RequestError or StoreError.
        """
        now_ms = self._clock.wall_ms()
        ids = [_id_of(message) for message in messages]
        found = [None if id_ is None else self._ids.find(topic, id_) for id_ in ids]
        new = self._new(ids, found)
        stored = self._stored([messages[index] for index in new], now_ms)
        places: list[FirstSend] = []
        by_index = dict(zip(new, stored, strict=True))
        by_id: dict[str | None, FirstSend] = {}
        for index, (id_, first) in enumerate(zip(ids, found, strict=True)):
            place = first or by_index.get(index) or by_id[id_]
            places.append(place)
            by_id[id_] = place
            if id_ is not None and index in by_index:
                self._ids.add(topic, id_, place)
        duplicates = len(messages) - len(new)
        self._ids.count_duplicates(duplicates)
        key = places[0].unique_key if batch_key is None else batch_key

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            if error is not None:
                refuse(error)
            elif request.wants_answer:
                queue_id, queue_offset = shown_place(topic, places[0].sent_queue_id, places[0].queue_offset)
                frame = replies.idempotent_frame(
                    request, code, queue_id, key, queue_offset,
                    [place.physical_offset for place in places], duplicates, self._recall_handle(topic, places[0]),
                )  # fmt: skip
                request.channel.answer(request, frame, code=code)

        is_hasty = batch_key is None and find_last(messages[0].properties, _HASTY) == b"false"
        if self._waits.is_needed and not (is_hasty and self._waits.may_acknowledge):
            self._waits.wait(max(place.physical_offset + place.size_bytes for place in places), answer)
        else:
            answer(None, ResponseCode.SUCCESS)

    def _recall_handle(self, topic: str, place: FirstSend) -> str:
        """Return the handle with which the first message is recalled; empty if it is not in the timer wheel."""
        if not place.slot_ms:
            return ""
        name, key = self._config.broker.broker_name.encode(), place.unique_key.encode()
        return handle_text(topic.encode(), name, place.slot_ms, key).decode()

    @staticmethod
    def _new(ids: Sequence[str | None], found: Sequence[FirstSend | None]) -> list[int]:
        """Return the indices of the messages to store: without an id, or the first one with a new id."""
        seen: set[str] = set()
        new = []
        for index, (id_, first) in enumerate(zip(ids, found, strict=True)):
            if first is not None or id_ in seen:
                continue
            new.append(index)
            if id_ is not None:
                seen.add(id_)
        return new

    def _stored(self, messages: Sequence[PendingMessage], now_ms: int) -> list[FirstSend]:
        """Append `messages` and return their places."""
        if not messages:
            return []
        appended = self._store.append(messages)
        self._flow.stored(messages, appended)
        return [
            first_send(
                message.topic, message.queue_id, queue_offset, physical_offset, size_bytes, message.properties, now_ms
            )
            for message, (queue_offset, physical_offset, size_bytes) in zip(messages, appended, strict=True)
        ]


def _id_of(message: PendingMessage) -> str | None:
    found = find_last(message.properties, NAME)
    return java_text(found) if found else None


def _illegal(why: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, f"{IDEMPOTENCE_ID}: {why}", Reason.MESSAGE_ILLEGAL)
