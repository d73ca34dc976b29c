"""The path of usual pulls: one call reads them, finds their records and makes their responses.

It serves the usual pulls with which a read begins, compiled or with `broker.pull.pull_reader`.  `PullProcessor.pull`
serves all others; it gives the same responses.  See docs/engine-requests.md.
"""

import logging
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final, Protocol, runtime_checkable

from broker.client.clients import ConsumerRegistry
from broker.config.live_config import LiveConfig
from broker.filter.subscription_filter import is_tag_type, subscription_filter, tag_filter
from broker.metrics.message_flow import MessageFlow
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.pull import pull_reader
from broker.pull.pull_reader import PullReader
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topics import TopicTable
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import Frames
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route
from store.queue.usual_reads import UsualReads

logger = logging.getLogger(__name__)

_engine: Final = native("broker.pulls")
_SUCCESS: Final = int(ResponseCode.SUCCESS)
# About as much leaves in one write; other connections have their turn between two.
READ_BYTES: Final = WRITE_BYTES


@runtime_checkable
class UsualPullStore(Protocol):
    """Part of `MessageStore` that usual pulls need."""

    @property
    def usual_reads(self) -> UsualReads: ...


class UsualPulls:
    """Handler of the usual pulls of each of `routes`.  Lives in the event loop's thread.

    `may_serve` returns whether the broker is in a state in which pulls can be usual.
    """

    def __init__(
        self,
        config: LiveConfig,
        reads: UsualReads,
        topics: TopicTable,
        groups: SubscriptionGroups,
        consumers: ConsumerRegistry,
        offsets: ConsumerOffsets,
        flow: MessageFlow,
        found: ResponseTemplate,
        routes: Sequence[Route],
        may_serve: Callable[[], bool],
        engine: ModuleType | None,
    ) -> None:
        self._config = config
        self._reads = reads
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._flow = flow
        self._found = found
        self._may_serve = may_serve
        self._engine = engine
        self._routes = {int(route.code): route for route in routes}
        self._fields: dict[int, Any] = {}
        if engine is not None:
            fields = {code: header_fields(code, route.header, engine) for code, route in self._routes.items()}
            self._fields = {code: found for code, found in fields.items() if found is not None}
        self._configure()

    @classmethod
    def of(
        cls,
        config: LiveConfig,
        store: object,
        topics: TopicTable,
        groups: SubscriptionGroups,
        consumers: ConsumerRegistry,
        offsets: ConsumerOffsets,
        flow: MessageFlow,
        found: ResponseTemplate,
        routes: Sequence[Route],
        may_serve: Callable[[], bool],
    ) -> "UsualPulls | None":
        """Return the handler; None if `store` has no `usual_reads`."""
        if not isinstance(store, UsualPullStore):
            return None
        engine = None if found.encoder is None else _engine
        return cls(
            config, store.usual_reads, topics, groups, consumers, offsets, flow, found, routes, may_serve, engine
        )

    def _configure(self) -> None:
        self._broker = broker = self._config.broker
        served = self._routes if self._engine is None else self._fields
        codes = [code for code in served if broker.broker_permission & PERM_READ]
        if not broker.lite_pull_message_enable:
            codes = [code for code in codes if code != RequestCode.LITE_PULL_MESSAGE]
        self._readers = {code: self._reader(code) for code in codes}

    def _reader(self, code: int) -> Any:
        if self._engine is None:
            return PullReader(
                self._routes[code], self._found, self._lane, self._groups.get, self._topics.get,
                self._consumers.group, self._groups.forbidden, self._reads,
            )  # fmt: skip
        return self._engine.PullReader(
            code, self._fields[code], self._found.encoder, self._lane, self._groups.get, self._topics.get,
            self._consumers.group, self._groups.forbidden, self._reads.queue, self._reads.segment_at,
        )  # fmt: skip

    def handler(self, code: int) -> FramesHandler | None:
        """Return the handler for the pulls of one request code."""
        if self._engine is None:
            return CodeFrames(code, self.serve)
        return CodeFrames(code, self.serve, prove_code=self.serve) if code in self._fields else None

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel, proof: object | None = None) -> int:
        """Answer the usual pulls from `index` on; return how many, 0 if others must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        if self._config.broker is not self._broker:
            self._configure()
        reader = self._readers.get(code)
        if reader is None or self._offsets.has_resets or not self._may_serve():
            return 0
        unusual = None
        try:
            if self._engine is None:
                responses, notes, unusual = reader.read(frames, index, JOIN_BYTES, READ_BYTES)
            else:
                responses, notes = reader.read(frames, index, self._reads.limits(), JOIN_BYTES, READ_BYTES, proof)
        except Exception:
            # Nothing is noted yet: `PullProcessor.pull` serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=usual_pulls_failed peer=%s:%s", *channel.peer, exc_info=True)
            return 0
        count = len(notes)
        if count:
            self._note(notes, channel.peer)
            channel.answer_frames(
                code, count, frames=responses, code=_SUCCESS, read_at=channel.read_at, was_later=False
            )
        if unusual is None:
            return count
        # It is decoded already.
        unusual.channel = channel
        channel.serve_one(self._routes[code].handle, unusual)
        return count + 1

    def _note(self, notes: list[tuple[Any, int, int | None, int, int]], peer: tuple[str, int]) -> None:
        offsets, flow, total = self._offsets, self._flow, 0
        for lane, next_offset, commit_offset, messages, size_bytes in notes:
            group, topic, queue_id = lane.group, lane.topic, lane.queue_id
            offsets.note_pull(group, topic, queue_id, next_offset)
            if commit_offset is not None:
                offsets.commit(group, topic, queue_id, commit_offset, f"{peer[0]}:{peer[1]}")
            flow.delivered(topic, group, messages, size_bytes)
            total += messages
        self._reads.found(len(notes), total)

    def _lane(
        self,
        group: str,
        topic: str,
        queue_id: int,
        expression: str | None,
        expression_type: str | None,
        has_expression: bool,
    ) -> Any:
        """Return the `PullLane` of pulls of a group from a queue; None if they are unusual now."""
        group_config, topic_config = self._groups.get(group), self._topics.get(topic)
        queue = self._reads.queue(topic, queue_id)
        if group_config is None or topic_config is None or queue is None:
            return None
        if (
            not group_config.consume_enable
            or not topic_config.perm & PERM_READ
            or not 0 <= queue_id < topic_config.read_queue_nums
        ):
            return None
        subscription = None if has_expression else self._subscription(group, topic)
        if has_expression and is_tag_type(expression_type):
            tags = tag_filter(expression)
        elif subscription is not None and is_tag_type(subscription.expression_type):
            tags = subscription_filter(subscription)
        else:
            return None
        engine = pull_reader if self._engine is None else self._engine
        codes = None if tags is None else tags.few_codes(engine.MAX_CODES)
        if tags is not None and codes is None:
            return None
        broker_id = group_config.broker_id if self._broker.slave_read_enable else MASTER_ID
        return engine.PullLane(group_config, topic_config, queue_id, queue, subscription, codes, broker_id)

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        connected = self._consumers.group(group)
        return None if connected is None else connected.subscriptions.get(topic)
