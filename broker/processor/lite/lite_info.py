"""What operators see of lite topics, and TRIGGER_LITE_DISPATCH.

Source: RocketMQ 5.5.1, `LiteManagerProcessor`.  Beyond it the oldest lags need no key of the configuration.
"""

from itertools import islice
from typing import Final

from broker.core import BrokerCore
from broker.lite.admission import LiteAdmission
from broker.lite.events import LiteEvents
from broker.lite.lags import LiteLags
from broker.lite.lite_queues import LiteQueues
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from broker.lite.subscriptions import LiteSubscriptions
from sprocket.remoting.bodies.lite import (
    ClientGroup,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
)
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from sprocket.remoting.message.lite_topics import lite_queue, parent_and_lite
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps

_MAX_NAMES: Final = 10_000  # `LiteManagerProcessor.MAX_RETURN_COUNT`
_MAX_TOP: Final = 10_000
_ANY_CLIENT: Final = "*"


class LiteInfoProcessor:
    """Handler of the requests.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        admission: LiteAdmission,
        subscriptions: LiteSubscriptions,
        events: LiteEvents,
        queues: LiteQueues,
        order: LiteOrder,
        lags: LiteLags,
    ) -> None:
        self._core = core
        self._admission = admission
        self._subscriptions = subscriptions
        self._events = events
        self._queues = queues
        self._order = order
        self._lags = lags

    def routes(self) -> list[Route]:
        """Return the routes, with the actions of RocketMQ's headers."""
        code, topic, group, get = RequestCode, Resource.TOPIC, Resource.GROUP, Action.GET
        return [
            Route(code.GET_BROKER_LITE_INFO, NoHeader, self.broker_info, Resource.CLUSTER, get),
            Route(code.GET_PARENT_TOPIC_INFO, GetParentTopicInfoRequestHeader, self.parent_info, topic, get),
            Route(code.GET_LITE_TOPIC_INFO, GetLiteTopicInfoRequestHeader, self.topic_info, topic, get),
            Route(code.GET_LITE_CLIENT_INFO, GetLiteClientInfoRequestHeader, self.client_info, topic, get),
            Route(code.GET_LITE_GROUP_INFO, GetLiteGroupInfoRequestHeader, self.group_info, group, get),
            Route(
                code.TRIGGER_LITE_DISPATCH, TriggerLiteDispatchRequestHeader, self.look_again, group, Action.UPDATE
            ),
        ]  # fmt: skip

    def broker_info(self, request: Request[NoHeader]) -> Response:
        """Return sizes of tables, and parents and groups of lite topics."""
        core = self._core
        body = GetBrokerLiteInfoResponseBody(
            store_type="default",
            max_lmq_num=core.config.store.max_lmq_consume_queue_num,
            current_lmq_num=core.store.light_queue_count,
            lite_subscription_count=self._subscriptions.count,
            order_info_count=len(self._order),
            cq_table_size=core.store.queue_count,
            offset_table_size=core.offsets.key_count,
            event_map_size=len(self._events),
            topic_meta=self._admission.expirations(),
            group_meta=self._admission.groups_by_parent(),
        )
        return Response(body=dumps(body))

    def parent_info(self, request: Request[GetParentTopicInfoRequestHeader]) -> Response:
        """Return groups and number of lite topics of a parent.  Raises RequestError."""
        topic = request.header.topic
        minutes = self._admission.check_parent(topic)
        body = GetParentTopicInfoResponseBody(
            topic, minutes, self._admission.groups_by_parent().get(topic, []), self._core.store.light_queue_count,
            self._queues.count(topic),
        )  # fmt: skip
        return Response(body=dumps(body))

    def topic_info(self, request: Request[GetLiteTopicInfoRequestHeader]) -> Response:
        """Return offsets and subscribers of a lite topic.  Raises RequestError.

        `shardingToBroker` is true: a broker of Sprocket takes the subscriptions and messages of all lite topics.
        """
        parent, lite, store = request.header.parent_topic, request.header.lite_topic or "", self._core.store
        self._admission.check_parent(parent)
        queue = lite_queue(parent, lite)
        end = store.max_offset(queue, LITE_QUEUE_ID)
        offset = TopicOffset(0, 0, 0)
        if end > 0:
            low, last_ms = store.min_offset(queue, LITE_QUEUE_ID), store.store_time(queue, LITE_QUEUE_ID, end - 1)
            offset = TopicOffset(low, end, last_ms)
        named = [
            ClientGroup(client.key.client_id, group)
            for group, members in self._subscriptions.subscribers(queue)
            for client in members
        ]
        wild = [ClientGroup(_ANY_CLIENT, group) for group, _ in self._subscriptions.wildcards(parent)]
        return Response(body=dumps(GetLiteTopicInfoResponseBody(parent, lite, named + wild, offset, True)))

    def client_info(self, request: Request[GetLiteClientInfoRequestHeader]) -> Response:
        """Return lite topics of a client.  Raises RequestError."""
        header = request.header
        refusal = self._not_bound(header.parent_topic, header.group)
        if refusal is not None:
            return refusal
        body = GetLiteClientInfoResponseBody(
            header.parent_topic, header.group, header.client_id or "", last_access_time=-1, lite_topic_count=-1
        )
        client = self._subscriptions.find(header.group, header.client_id or "")
        if client is not None:
            body.lite_topic_count = len(client.queues)
            body.lite_topic_set = list(islice(client.queues, max(0, min(header.max_count, _MAX_NAMES))))
            at = self._events.last_access_s(client)
            if at is not None:
                clock = self._core.clock
                body.last_access_time = clock.wall_ms() - int((clock.monotonic() - at) * 1000)
        return Response(body=dumps(body))

    def _not_bound(self, parent: str, group: str) -> Response | None:
        self._admission.check_parent(parent)
        if group not in self._core.groups:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{group}] not exist.")
        how = self._admission.how(group)
        if how is None or how.parent != parent:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{parent}] not match.")
        return None

    def look_again(self, request: Request[TriggerLiteDispatchRequestHeader]) -> Steps:
        """Let one client, or all of the group, look at all its lite topics.  Raises RequestError."""
        group, client_id = request.header.group, request.header.client_id
        self._admission.check_group(group)
        clients = self._subscriptions.of_group(group)
        for client in clients:
            if not client_id or client.key.client_id == client_id:
                self._events.look_again(client)
                yield
        return Response()

    # Lag

    def group_info(self, request: Request[GetLiteGroupInfoRequestHeader]) -> Steps:
        """Return the lag of a group in one lite topic, or the largest lags.  Raises RequestError."""
        header = request.header
        how = self._admission.check_group(header.group)
        body = GetLiteGroupInfoResponseBody(header.group, how.parent, header.lite_topic)
        if header.lite_topic:
            self._one_lag(body, lite_queue(how.parent, header.lite_topic), header.group)
        else:
            lag = yield from self._lags.of_group(how.parent, header.group)
            top = max(0, min(header.top_k, _MAX_TOP))
            largest = [self._lag_info(header.group, queue, lag.of(queue)) for queue in lag.largest(top)]
            oldest = yield from self._lags.oldest(lag, header.group, max(top, 1))
            body.total_lag_count = lag.total
            body.lag_count_top_k = largest
            body.lag_timestamp_top_k = [
                self._lag_info(header.group, queue, lag.of(queue), time_ms) for time_ms, queue in oldest[:top]
            ]
            if oldest:
                body.earliest_unconsumed_timestamp = oldest[0][0]
        return Response(body=dumps(body))

    def _lag_info(self, group: str, queue: str, count: int, time_ms: int | None = None) -> LiteLagInfo:
        _, lite = parent_and_lite(queue) or ("", queue)
        return LiteLagInfo(lite, count, self._lags.time_of(group, queue) if time_ms is None else time_ms)

    def _one_lag(self, body: GetLiteGroupInfoResponseBody, queue: str, group: str) -> None:
        store = self._core.store
        end = store.max_offset(queue, LITE_QUEUE_ID)
        if end <= 0:
            body.total_lag_count = -1
            return
        committed = self._core.offsets.query(group, queue, LITE_QUEUE_ID)
        if committed >= 0:
            body.total_lag_count = end - committed
            body.earliest_unconsumed_timestamp = store.store_time(queue, LITE_QUEUE_ID, committed)
            last_ms = store.store_time(queue, LITE_QUEUE_ID, committed - 1) if committed else 0
            body.lite_topic_offset_wrapper = OffsetWrapper(end, committed, committed, last_ms)
