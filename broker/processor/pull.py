"""PULL_MESSAGE and LITE_PULL_MESSAGE: messages of one queue, sent from the mapped file without a copy.

For the differences on a slave see `broker.slave.slave_reads`.
Source: RocketMQ 5.3.3, `PullMessageProcessor`, `DefaultPullMessageResultHandler`, `PullSysFlag`, `ForbiddenType`.
"""

import logging
from dataclasses import replace
from typing import Final, Protocol

from broker.client.clients import ConsumerRegistry
from broker.config.live_config import LiveConfig
from broker.filter.consumer_filters import ConsumerFilters, retry_group
from broker.filter.sql_filter import SQL92, compiled
from broker.filter.subscription_filter import is_tag_type, subscription_filter, tag_filter
from broker.filter.tokens import InvalidExpression
from broker.longpolling.held_pulls import AnswerPull, HeldPulls, PullFilter
from broker.metrics.message_flow import MessageFlow
from broker.offset.broadcast_offsets import BroadcastOffsets
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.pull.pull_reader import COMMIT_OFFSET, SUBSCRIPTION
from broker.pull.usual_pulls import UsualPulls
from broker.send.admission import FAQ
from broker.slave.slave_reads import SlaveReads, suggested_id
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topics import TopicTable
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, Request, Response
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.routes import Action, Lane, Resource, Route
from store.queue.get_result import GetResult, GetStatus
from store.queue.queue_reader import MessageFilter
from store.queue.record_filter import RecordFilter

logger = logging.getLogger(__name__)

SUSPEND: Final = 0x2

_DEFAULT_MAX_BYTES: Final = 0x7FFFFFFF
# `ForbiddenType`
_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCASTING, _BY_SUBSCRIPTION = 1, 2, 3, 4, 5
# Max time that a pull is held, whatever the client asks for.
_MAX_HOLD_S: Final = 10 * 60.0

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_FIELDS: Final = dict.fromkeys(
    ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag"), "%d"
)


def _template(status: GetStatus) -> ResponseTemplate:
    return ResponseTemplate(_CODES[status], _FIELDS, remark=status.name)


_TEMPLATES: Final = {status: _template(status) for status in _CODES}
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
# Codes that a slave responds instead of these.
_RETRIES: Final = {
    status: ResponseTemplate(ResponseCode.PULL_RETRY_IMMEDIATELY, _FIELDS, remark=status.name) for status in _CODES
}
_FOUND: Final = _TEMPLATES[GetStatus.FOUND]
# A lookup of an enum member takes longer than a comparison.
_STATUS_FOUND: Final = GetStatus.FOUND
_LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)
# In an empty queue, the start is a valid offset.
_EMPTY: Final = {
    status: ResponseTemplate(ResponseCode.PULL_NOT_FOUND, _FIELDS, remark=status.name)
    for status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
}


class PullStore(Protocol):
    """Part of `MessageStore` that a pull needs."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        matches: MessageFilter | None,
        /,
    ) -> GetResult: ...

    def min_offset(self, topic: str, queue_id: int, /) -> int: ...

    def max_offset(self, topic: str, queue_id: int, /) -> int: ...


class ColdGate(Protocol):
    """Part of `ColdFlow` that delays pulls of messages that are no longer in memory."""

    @property
    def is_on(self) -> bool: ...

    def delays(self, request: Request[PullMessageRequestHeader], answer: AnswerPull | None, /) -> bool: ...

    def note(self, header: PullMessageRequestHeader, result: GetResult, /) -> None: ...


class PullForbidden(RequestError):
    """Error: the pull is forbidden; the header's forbiddenType says why."""

    def __init__(self, forbidden_type: int, remark: str, reason: Reason) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark, reason, {"forbiddenType": str(forbidden_type)})


class PullProcessor:
    """Handler of pulls.  Lives in the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        store: PullStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        consumers: ConsumerRegistry,
        offsets: ConsumerOffsets,
        filters: ConsumerFilters,
        flow: MessageFlow,
        *,
        held: HeldPulls | None = None,
        broadcasts: BroadcastOffsets | None = None,
        slave: SlaveReads | None = None,
        cold: ColdGate | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._filters = filters
        self._flow = flow
        self.held = held  # None: no pull is held
        self.broadcasts = broadcasts  # None: offsets of broadcasting groups are not kept
        self.slave = slave  # only on a slave
        self.cold = cold  # used while coldDataFlowControlEnable is on

    def routes(self) -> list[Route]:
        """Return the routes of this handler."""
        routes = [
            Route(code, PullMessageRequestHeader, self.pull, Resource.GROUP, Action.SUB, Lane.PULL)
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        ]
        usual = UsualPulls.of(
            self._config, self._store, self._topics, self._groups, self._consumers, self._offsets, self._flow,
            _template(GetStatus.FOUND), routes, self._may_be_usual,
        )  # fmt: skip
        if usual is None:
            return routes
        return [replace(route, usual=usual.handler(int(route.code))) for route in routes]

    def _may_be_usual(self) -> bool:
        """Whether pulls need no look at a slave's state or at cold data."""
        return self.slave is None and (self.cold is None or not self.cold.is_on)

    def pull(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        """Answer a pull, or hold it."""
        return self._pull(request, may_hold=True)

    def answer_held(self, request: Request[PullMessageRequestHeader]) -> None:
        """Answer a held pull with what there is now.  Never raises, because other pulls are answered after it."""
        try:
            response = self._pull(request, may_hold=False)
        except Exception as error:
            request.channel.refuse(request, error)
        else:
            if response is not None:
                request.channel.reply(request, response)

    def reset(self, group: str, topic: str, queue_id: int) -> None:
        """Answer a held pull of a group whose offset was reset, so that it moves to the new offset."""
        if self.held is not None:
            self.held.wake(topic, queue_id, lambda request: request.header.consumer_group == group)

    def _pull(self, request: Request[PullMessageRequestHeader], *, may_hold: bool) -> Response | None:
        header, slave = request.header, self.slave
        if slave is not None and (refusal := slave.refusal(request)) is not None:
            return refusal
        group = self._group(request)
        topic = self._topic(header, request.channel.peer)
        matches = self._filter(header, group)
        cold = self.cold
        if cold is not None:
            if not cold.is_on:
                cold = None
            elif cold.delays(request, self.answer_held if may_hold else None):
                return None
        broadcasts = self._broadcasts(header)
        begin = -1 if broadcasts is None else broadcasts.begin(request)
        result = self._get(header, matches, begin)
        if slave is not None:
            slave.correct(result, header.queue_offset)
        self._note_offsets(header, result, request.channel.peer, may_hold)
        status = result.status
        if status is _STATUS_FOUND:
            if cold is not None:
                cold.note(header, result)
            if broadcasts is not None:
                broadcasts.note(request, None)
            self._write(request, _FOUND, result, topic, group)
            self._flow.delivered(header.topic, header.consumer_group, result.message_count, result.size_bytes)
            return None
        template = _EMPTY.get(status) if header.queue_offset == 0 else None
        if template is None:
            template = _TEMPLATES[status]
        if broadcasts is not None:
            broadcasts.note(request, result.next_offset if template.code == _MOVED else None)
        hold_s = _MAX_HOLD_S if template.code == ResponseCode.PULL_NOT_FOUND else 0.0
        if slave is not None:
            code, hold_s = slave.verdict(request, result, template.code, may_hold=may_hold)
            if code != template.code:
                template = _RETRIES[status]
        if hold_s and may_hold and self._hold(request, matches, hold_s):
            return None
        if template.code == ResponseCode.PULL_OFFSET_MOVED:
            peer_lines.info(
                logger, request.channel.peer,
                "event=pull_offset_moved status=%s group=%s topic=%s queue=%d from=%d to=%d", status.name,
                header.consumer_group, header.topic, header.queue_id, header.queue_offset, result.next_offset,
            )  # fmt: skip
        self._write(request, template, result, topic, group)
        return None

    # Checks

    def _group(self, request: Request[PullMessageRequestHeader]) -> SubscriptionGroupConfig:
        broker = self._config.broker
        if not broker.broker_permission & PERM_READ:
            remark = f"the broker[{broker.broker_ip1}] pulling message is forbidden"
            raise PullForbidden(_BY_BROKER, remark, Reason.BROKER_NOT_READABLE)
        if request.code == _LITE_PULL and not broker.lite_pull_message_enable:
            remark = f"the broker[{broker.broker_ip1}] for lite pull consumer is forbidden"
            raise PullForbidden(_BY_BROKER, remark, Reason.TURNED_OFF)
        name = request.header.consumer_group
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise PullForbidden(_BY_GROUP, f"subscription group no permission, {name}", Reason.GROUP_DISABLED)
        return group

    def _topic(self, header: PullMessageRequestHeader, peer: tuple[str, int]) -> TopicConfig:
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise PullForbidden(_BY_TOPIC, remark, Reason.TOPIC_NOT_READABLE)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer[0]}:{peer[1]}]"
            )
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.QUEUE_NOT_EXIST)
        return topic

    def _filter(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> PullFilter | None:
        """Return the filter of the consumer's subscription: from the request, else from its group's heartbeats."""
        if header.sys_flag & SUBSCRIPTION:
            if is_tag_type(header.expression_type):
                return tag_filter(header.subscription)
            return self._filter_of_request(header)
        subscription = self._subscription(header, group)
        if is_tag_type(subscription.expression_type):
            return subscription_filter(subscription)
        return self._filter_of_group(header, subscription)

    def _filter_of_request(self, header: PullMessageRequestHeader) -> RecordFilter:
        if not header.subscription:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        self._check_enabled(header.expression_type)
        if header.expression_type != SQL92:
            raise _unsupported_expression(header.expression_type)
        try:
            sql = compiled(header.subscription)
        except InvalidExpression as error:
            remark = f"parse the consumer's subscription failed: {error.remark}"
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        return self._of_retry(header) or sql.record_filter()

    def _filter_of_group(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> RecordFilter | None:
        held = self._filters.find(header.topic, header.consumer_group)
        if held is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise RequestError(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if held.data.client_version < header.sub_version:
            raise RequestError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        self._check_enabled(subscription.expression_type)
        if subscription.class_filter_mode:
            return None
        return self._of_retry(header) or held.records

    def _check_enabled(self, expression_type: str | None) -> None:
        if not self._config.broker.enable_property_filter:
            raise _unsupported_expression(expression_type)

    def _of_retry(self, header: PullMessageRequestHeader) -> RecordFilter | None:
        """Return the filter of a retry topic, which uses the group's subscriptions to the original topics."""
        group = retry_group(header.topic) if self._config.broker.filter_support_retry else None
        return None if group is None else self._filters.retry_records(group)

    def _subscription(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        name = header.consumer_group
        connected = self._consumers.group(name)
        if connected is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not group.consume_broadcast_enable and connected.is_broadcasting:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise PullForbidden(_BY_BROADCASTING, remark, Reason.GROUP_FORBIDDEN)
        if self._groups.forbidden(name, header.topic) & PERM_READ:
            remark = f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            raise PullForbidden(_BY_SUBSCRIPTION, remark, Reason.GROUP_FORBIDDEN)
        subscription = connected.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    # The answer

    def _broadcasts(self, header: PullMessageRequestHeader) -> BroadcastOffsets | None:
        """Return the table of offsets if the consumer's group broadcasts; else None."""
        if header.request_source is None or header.request_source < 0:
            group = self._consumers.group(header.consumer_group)
            if group is None or not group.is_broadcasting:
                return None
        return self.broadcasts

    def _get(self, header: PullMessageRequestHeader, matches: PullFilter | None, begin: int) -> GetResult:
        topic, queue_id, store = header.topic, header.queue_id, self._store
        if self._offsets.has_resets:
            reset = self._offsets.take_reset(header.consumer_group, topic, queue_id)
            if reset is not None and reset != header.queue_offset:
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                return GetResult(GetStatus.OFFSET_RESET, reset, low, high, [], 0, 0, False)
        if begin >= 0:
            return GetResult(GetStatus.OFFSET_RESET, begin, 0, 0, [], 0, 0, False)
        max_bytes = header.max_msg_bytes
        if max_bytes is None or max_bytes <= 0:
            max_bytes = _DEFAULT_MAX_BYTES
        return store.get(topic, queue_id, header.queue_offset, header.max_msg_nums, max_bytes, matches)

    def _note_offsets(
        self, header: PullMessageRequestHeader, result: GetResult, peer: tuple[str, int], is_first: bool
    ) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pull(group, topic, queue_id, result.next_offset)
        # With OFFSET_RESET, the committed offset is from before the reset.
        if is_first and header.sys_flag & COMMIT_OFFSET and result.status is not GetStatus.OFFSET_RESET:
            self._offsets.commit(group, topic, queue_id, header.commit_offset, f"{peer[0]}:{peer[1]}")

    def _hold(self, request: Request[PullMessageRequestHeader], matches: PullFilter | None, max_s: float) -> bool:
        header, held = request.header, self.held
        if held is None or not header.sys_flag & SUSPEND:
            return False
        broker = self._config.broker
        timeout_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_mills
        timeout_s = min(max(timeout_ms, 0) / 1000, max_s)
        return held.hold(
            request, header.topic, header.queue_id, header.queue_offset, matches, timeout_s, self.answer_held
        )

    def _write(
        self,
        request: Request[PullMessageRequestHeader],
        template: ResponseTemplate,
        result: GetResult,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> None:
        if request.flag & FLAG_ONEWAY:
            return
        if self.slave is None:
            suggested = suggested_id(result, group, self._config.broker.slave_read_enable)
        else:
            suggested = self.slave.suggested_id(result, group)
        values = (
            suggested, result.next_offset, result.min_offset, result.max_offset,
            topic.topic_sys_flag, group.group_sys_flag,
        )  # fmt: skip
        frame = template.frame(request.serialization, request.opaque, values, result.size_bytes)
        request.channel.answer(request, frame, *result.slices, code=template.code)


def _unsupported_expression(expression_type: str | None) -> RequestError:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.SUBSCRIPTION)
