"""Handlers for clients: heartbeats and lists of members.

Source: RocketMQ 5.3.3, `ClientManageProcessor`, `ConsumerManageProcessor`.
"""

import logging
from typing import Any

from broker.client.clients import Member
from broker.core import BrokerCore
from broker.filter.sql_filter import SQL92
from broker.filter.subscription_filter import is_tag_type
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import ConsumerData, ConsumerIdList, HeartbeatData
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.bodies.requests import read_check_client
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import LanguageCode, RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from sprocket.remoting.message.topic_names import retry_topic
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps, Traffic

logger = logging.getLogger(__name__)

# `TopicSysFlag.FLAG_UNIT_SUB`
_UNIT_SUB_FLAG = 0x2
# Consumer groups of a heartbeat that are registered together: some 100 us each.
_GROUPS_OF_A_STEP = 5
_LANGUAGES = {key: language.name for language in LanguageCode for key in (language.name, str(int(language)))}


class ClientProcessor:
    """Handler of HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG, GET_CONSUMER_LIST_BY_GROUP."""

    def __init__(self, core: BrokerCore) -> None:
        self._sql = core.filters.sql
        self._quotas = core.quotas
        self._config = core.config
        self._topics = core.topics
        self._groups = core.groups
        self._consumers = core.consumers
        self._producers = core.producers
        self._clock = core.clock
        # group -> fingerprint of the subscriptions in its last heartbeat
        self._fingerprints: dict[str, int] = {}

    def routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.HEART_BEAT, HeartbeatRequestHeader, self.heartbeat,
                Resource.GROUP, Action.SUB, Traffic.CLIENT,
            ),
            Route(
                RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, self.unregister,
                Resource.GROUP, Action.SUB, Traffic.CLIENT,
            ),
            Route(
                RequestCode.CHECK_CLIENT_CONFIG, NoHeader, self.check_client_config,
                Resource.GROUP, Action.SUB, Traffic.CLIENT,
            ),
            Route(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader, self.consumer_list,
                Resource.GROUP, Action.SUB, Traffic.CLIENT,
            ),
        ]  # fmt: skip

    def heartbeat(self, request: Request[HeartbeatRequestHeader]) -> Steps:
        """Register a client in its groups, some in each step.  New groups and their retry topics are created."""
        with self._quotas.work_of(request.channel):
            data = read_heartbeat(request.body)
        if not data.client_id:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "clientID is empty")
        groups = [one.group_name for one in data.consumer_data_set] + [one.group_name for one in data.producer_data_set]
        with self._consumers.connections.joining(groups, request.channel):
            return (yield from self._registered(request, data))

    def _registered(self, request: Request[HeartbeatRequestHeader], data: HeartbeatData) -> Steps:
        member = self._member(request, data.client_id)
        is_sub_change = data.heartbeat_fingerprint == 0
        for first in range(0, len(data.consumer_data_set), _GROUPS_OF_A_STEP):
            if first:
                yield
            with self._quotas.work_of(request.channel):
                for consumer in data.consumer_data_set[first : first + _GROUPS_OF_A_STEP]:
                    self._quotas.note(request.channel, consumer.group_name)
                    if self._register_consumer(member, consumer, data):
                        is_sub_change = True
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, member)
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_sub_change else "false"}
        return Response(header=fields)

    def _register_consumer(self, member: Member, consumer: ConsumerData, data: HeartbeatData) -> bool:
        """Register one consumer; return whether the client must send its subscriptions in full next time."""
        group = self._groups.find(consumer.group_name)
        if group is None:
            unknown = self._groups.unknown(consumer.group_name)
            if unknown.reason is Reason.NAMESPACE:
                raise unknown.error(member.channel.peer)
            peer_lines.warning(
                logger, member.channel.peer, "event=heartbeat_of_unknown_group group=%s client=%s",
                consumer.group_name, data.client_id,
            )  # fmt: skip
            return False
        before = self._fingerprints.get(consumer.group_name)
        self._fingerprints[consumer.group_name] = data.heartbeat_fingerprint
        ordered = any(self._topics.is_order(wanted.topic) for wanted in consumer.subscription_data_set)
        self._topics.get_or_create(
            retry_topic(consumer.group_name),
            group.retry_queue_nums,
            order=None if data.without_sub else ordered,
            topic_sys_flag=_UNIT_SUB_FLAG if consumer.unit_mode else 0,
        )
        self._consumers.register(
            member,
            consumer,
            notify=group.notify_consumer_ids_changed_enable,
            with_subscriptions=not data.without_sub,
        )
        if before is None:
            # The client omits its subscriptions because it has sent them, but a restarted broker does not have them.
            return data.without_sub
        return before != data.heartbeat_fingerprint

    def _member(self, request: Request[Any], client_id: str) -> Member:
        # The language is a name in a JSON header, and a number in a binary one.
        language = _LANGUAGES.get(request.language or "", LanguageCode.OTHER.name)
        return Member(request.channel, client_id, language, request.version, self._clock.monotonic())

    def unregister(self, request: Request[UnregisterClientRequestHeader]) -> Steps:
        """Remove a client from a producer group, a consumer group, or both."""
        yield  # after the steps of its heartbeats, which else would register it again
        header = request.header
        if header.producer_group:
            self._producers.unregister(header.producer_group, request.channel)
        if header.consumer_group:
            group = self._groups.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, request.channel, notify=notify)
        return Response()

    def check_client_config(self, request: Request[NoHeader]) -> Response:
        """Refuse a filter type that this broker does not support: always tags, SQL92 only if enabled."""
        subscription = read_check_client(request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return Response()
        if not self._config.broker.enable_property_filter or subscription.expression_type != SQL92:
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        try:
            self._sql.compiled(subscription.sub_string or "")  # raises the error that the client must see
        finally:
            self._quotas.worked(request.channel, self._sql.take_spent_s())
        return Response()

    def consumer_list(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        """Return the client ids of a group, among which its members divide the queues."""
        group = self._consumers.group(request.header.consumer_group)
        if group is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.header.consumer_group}")
        return Response(body=dumps(ConsumerIdList(group.client_ids())))
