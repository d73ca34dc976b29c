"""QUERY_CONSUME_QUEUE: the raw entries of a ConsumeQueue.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.queryConsumeQueue`.
"""

from typing import Final

from broker.core import BrokerCore
from sprocket.remoting.bodies.consumption import ConsumeQueueData, QueryConsumeQueueResponseBody
from sprocket.remoting.codec.fastjson import dumps, in_steps
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import QueryConsumeQueueRequestHeader
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Resource, Route, Steps

# Max entries of one response; a request for more gets the first ones.
_MAX_ENTRIES: Final = 10_000
# RocketMQ's JSON text of a missing filter.
_NO_FILTER: Final = "null"


class QueueProcessor:
    """Handler of QUERY_CONSUME_QUEUE."""

    def __init__(self, core: BrokerCore) -> None:
        self._store = core.store
        self._topics = core.topics
        self._consumers = core.consumers
        self._filters = core.filters

    def routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader, self.query,
                Resource.TOPIC, Action.GET,
            ),
        ]  # fmt: skip

    def query(self, request: Request[QueryConsumeQueueRequestHeader]) -> Steps:
        """Return `count` entries from `index` on; with a group, also its subscription to the topic."""
        header, store = request.header, self._store
        topic, queue_id = header.topic, header.queue_id
        if not self._exists(topic, queue_id):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if not low <= header.index <= high:
            # A success without a body, as in RocketMQ.
            return Response(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=high, min_queue_index=store.reported_min_offset(topic, queue_id), queue_data=[]
        )
        if header.consumer_group is not None:
            self._describe_filter(header.consumer_group, topic, body)
        last = min(high, header.index + min(max(header.count, 0), _MAX_ENTRIES))
        entries = (store.entry(topic, queue_id, offset) for offset in range(header.index, last))
        body.queue_data = yield from in_steps(
            (
                ConsumeQueueData(physic_offset=entry[0], physic_size=entry[1], tags_code=entry[2])
                for entry in entries
                if entry is not None
            ),
            list,
        )
        return Response(body=dumps(body))

    def _exists(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        declared = 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)
        return 0 <= queue_id < declared or self._store.has_queue(topic, queue_id)

    def _describe_filter(self, group: str, topic: str, body: QueryConsumeQueueResponseBody) -> None:
        body.subscription_data = self._consumers.find_subscription(group, topic)
        if body.subscription_data is None:
            body.filter_data = f"{group}@{topic} is not online!"
            return
        held = self._filters.find(topic, group)
        body.filter_data = _NO_FILTER if held is None else pretty(held.data).decode()
