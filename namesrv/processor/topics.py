"""Requests about topics: their routes, lists of them, and their removal.

Source: RocketMQ 5.3.3, `ClientRequestProcessor`, `DefaultRequestProcessor`, `FAQUrl`.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from acl.visible_names import only_visible
from namesrv import route_queries
from namesrv.config import NamesrvConfig
from namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from namesrv.route_table import RouteInfo
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.requests import read_topic_route
from sprocket.remoting.bodies.topic import TopicList
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Check, NoHeader, Resource, Route, Steps, Traffic

logger = logging.getLogger(__name__)

# Ordinal of V4_9_4 in `MQVersion`: since that version clients read standard JSON.
_VERSION_4_9_4 = 401
_FAQ_HINT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_DISABLED: Final = Refusal(ResponseCode.SYSTEM_ERROR, "disable", reason=Reason.TURNED_OFF)


class TopicProcessor:
    """Handler of requests for routes and lists of topics.  `uptime_ms` returns the time since the start."""

    def __init__(
        self,
        table: RouteInfo,
        kv_config: KVConfig,
        settings: LiveSettings[NamesrvConfig],
        uptime_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._settings = settings
        self._uptime_ms = uptime_ms

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, topic, cluster = RequestCode, Resource.TOPIC, Resource.CLUSTER
        get, update = Action.GET, Action.UPDATE
        return [
            Route(
                code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, self.route, topic, get, Traffic.CLIENT,
                checks=(self._check_ready,),
            ),
            Route(code.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader, self.register, cluster, update),
            Route(code.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader, self.delete, cluster, update),
            Route(
                code.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader, self.by_cluster, topic, Action.LIST,
                checks=(self._check_lists,),
            ),
            Route(
                code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoHeader, self.all_topics, topic, Action.LIST,
                checks=(self._check_list_of_all,),
            ),
            self._list(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, route_queries.system_topics),
            self._list(code.GET_UNIT_TOPIC_LIST, route_queries.unit_topics, self._check_lists),
            self._list(code.GET_HAS_UNIT_SUB_TOPIC_LIST, route_queries.unit_sub_topics, self._check_lists),
            self._list(
                code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, route_queries.unit_sub_ununit_topics, self._check_lists
            ),
        ]  # fmt: skip

    def _list(self, code: RequestCode, query: Callable[[RouteInfo], TopicList], *checks: Check) -> Route:
        def handle(_: Request[Any]) -> Response:
            return Response(body=dumps(query(self._table)))

        return Route(code, NoHeader, handle, Resource.TOPIC, Action.LIST, checks=checks)

    # Checks of the routes

    def _check_ready(self, _: Request[Any]) -> Refusal | None:
        config = self._settings.current
        if config.need_wait_for_service and self._uptime_ms() < config.wait_seconds_for_service * 1000:
            return Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready", reason=Reason.NOT_READY)
        return None

    def _check_list_of_all(self, _: Request[Any]) -> Refusal | None:
        return None if self._settings.current.enable_all_topic_list else _DISABLED

    def _check_lists(self, _: Request[Any]) -> Refusal | None:
        return None if self._settings.current.enable_topic_list else _DISABLED

    # Handlers

    def route(self, request: Request[GetRouteInfoRequestHeader]) -> Response:
        """Return where the queues of a topic are."""
        config, header = self._settings.current, request.header
        route = route_queries.topic_route(self._table, header.topic, support_acting_master=config.support_acting_master)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{_FAQ_HINT}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if config.order_message_enable:
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = bool(header.accept_standard_json_only) or request.version >= _VERSION_4_9_4
        if header.zone_name and (header.zone_mode or "").lower() == "true":
            # RocketMQ decodes its own response to filter it, and encodes it in the old dialect.
            route, standard = route_queries.in_zone(route, header.zone_name), False
        return Response(body=dumps(route, standard=standard))

    def all_topics(self, request: Request[NoHeader]) -> Steps:
        """Return all topics that the caller may see."""
        return _shown(route_queries.all_topics(self._table), request)

    def by_cluster(self, request: Request[GetTopicsByClusterRequestHeader]) -> Steps:
        """Return the topics of a cluster that the caller may see."""
        return _shown(route_queries.topics_by_cluster(self._table, request.header.cluster), request)

    def register(self, request: Request[RegisterTopicRequestHeader]) -> Response:
        """Register routes of one topic, for a broker that registers topics one by one."""
        topic = request.header.topic
        queue_datas = read_topic_route(request.body).queue_datas
        if self._table.add_topic(topic, queue_datas):
            peer_lines.info(
                logger, request.channel.peer, "event=topic_registered topic=%s brokers=%s", topic,
                [q.broker_name for q in queue_datas],
            )  # fmt: skip
        elif queue_datas:
            peer_lines.warning(
                logger, request.channel.peer, "event=topic_refused topic=%s reason=unknown_broker", topic
            )
        return Response()

    def delete(self, request: Request[DeleteTopicFromNamesrvRequestHeader]) -> Response:
        """Remove a topic's routes, in one cluster or in all."""
        topic, cluster_name = request.header.topic, request.header.cluster_name
        if cluster_name:
            removed = bool(self._table.drop_topic_in_cluster(topic, cluster_name))
        else:
            removed = self._table.drop_topic(topic)
        if removed:
            peer_lines.info(
                logger, request.channel.peer, "event=topic_deleted topic=%s cluster=%s", topic, cluster_name or "*"
            )
        return Response()


def _shown(found: TopicList, request: Request[Any]) -> Steps:
    topics = yield from only_visible(dict.fromkeys(found.topic_list), request)
    return Response(body=dumps(TopicList(list(topics))))
