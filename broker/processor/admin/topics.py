"""Handlers for the administration of topics.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.updateAndCreateTopic`, `deleteTopic`, `getTopicStatsInfo` and others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from acl.visible_names import only_visible
from broker.attributes import parse_changes
from broker.core import BrokerCore
from broker.metrics.statistics import RateWindow
from broker.names import illegal_topic
from broker.processor.admin.cleaning import remove_queues
from broker.table_pages import TablePages
from broker.topic.namespace_topics import planned
from broker.topic.retry_topics import retry_topic_v1, retry_topic_v2
from broker.topic.topic_queue_mappings import check_detail, merged
from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import next_turn, to_its_end
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import GroupList
from sprocket.remoting.bodies.registration import TopicConfigAndMapping
from sprocket.remoting.bodies.requests import read_doomed_topics, read_mapping, read_topic_list
from sprocket.remoting.bodies.stats import TopicOffset, TopicStatsTable
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, PERM_PRIORITY, TopicConfig, TopicList
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping
from sprocket.remoting.codec.fastjson import dumps, in_steps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps
from sprocket.static_topic.item_checks import MappingError

logger = logging.getLogger(__name__)

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicProcessor:
    """Handler to create, delete and describe topics."""

    def __init__(self, core: BrokerCore, put_rates: RateWindow, settle: Callable[[], Awaitable[None]]) -> None:
        """`settle` waits until name servers have the changes."""
        self._config = core.config
        self._store = core.store
        self._tier = core.tier
        self._topics = core.topics
        self._mappings = core.mappings
        self._consumers = core.consumers
        self._offsets = core.offsets
        self._put_rates = put_rates
        self._settle = settle
        self._pages = TablePages(core.config)
        # Held while a topic and its mapping change, which are two files.
        self._changing = asyncio.Lock()

    def routes(self) -> list[Route]:
        code, topic, cluster = RequestCode, Resource.TOPIC, Resource.CLUSTER
        return [
            Route(code.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, self.create, topic, Action.CREATE),
            Route(code.UPDATE_AND_CREATE_TOPIC_LIST, NoHeader, self.create_list, topic, Action.CREATE),
            Route(
                code.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopicRequestHeader, self.create_static, topic, Action.CREATE
            ),
            Route(code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader, self.delete, topic, Action.DELETE),
            Route(code.DELETE_TOPIC_IN_BROKER_LIST, NoHeader, self.delete_list, topic, Action.DELETE),
            Route(code.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequestHeader, self.all_configs, topic, Action.LIST),
            Route(code.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader, self.config, topic, Action.GET),
            Route(code.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader, self.stats, topic, Action.GET),
            Route(
                code.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader, self.consumed_by,
                topic, Action.GET,
            ),
            Route(code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, NoHeader, self.system_topics, topic, Action.LIST),
            Route(code.CLEAN_UNUSED_TOPIC, NoHeader, self.clean_unused, cluster, Action.UPDATE),
        ]  # fmt: skip

    # Creating and deleting

    async def create(self, request: Request[CreateTopicRequestHeader]) -> Response:
        """Create or change a topic; the response follows when clients can find it."""
        self._update([_config(request.header, parse_changes(request.header.attributes))])
        await self._topics.save()
        await self._settle()
        return Response()

    async def create_static(self, request: Request[CreateTopicRequestHeader]) -> Response:
        """Create or change a static topic; the body says which of its logical queues are, or were, on this broker.

        The response follows when name servers have the mapping.
        """
        header, topic = request.header, request.header.topic
        config, detail = _config(header, {}), read_mapping(request.body)
        self._check(config)
        (config,) = planned(self._topics.namespaces, [config], self._topics.by_name)
        async with self._changing:
            try:
                check_detail(detail, topic, self._config.broker.broker_name, header.write_queue_nums)
                after = merged(self._mappings.get(topic), detail, force=header.force)
            except MappingError as error:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"static topic {topic}: {error}") from None
            # First the mapping: a static topic is never without it.
            self._mappings.put(topic, after)
            await self._mappings.save()
            if not self._topics.update([config]):
                self._topics.renew(topic)
            await self._topics.save()
        await self._settle()
        return Response()

    async def create_list(self, request: Request[NoHeader]) -> Response:
        """Create or change several topics, all or none."""
        self._update(read_topic_list(request.body))
        await self._topics.save()
        await self._settle()
        return Response()

    def _update(self, configs: list[TopicConfig]) -> None:
        for config in configs:
            self._check(config)
        configs = planned(self._topics.namespaces, configs, self._topics.by_name)
        if not self._topics.update(configs):
            # The topics are unchanged here, but a name server may have lost them.
            known = [self._topics.get(config.topic_name) for config in configs]
            self._topics.announce([config for config in known if config is not None])

    def _check(self, config: TopicConfig) -> None:
        self._check_name(config.topic_name)
        for key, count in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
            if not 0 <= count <= limits.MAX_TOPIC_QUEUES:
                raise _illegal(f"{key}QueueNums = {count}: allowed are 0 to {limits.MAX_TOPIC_QUEUES}")
        if not 0 <= config.perm < PERM_PRIORITY:
            raise _illegal(f"perm = {config.perm}: allowed are 2 (write), 4 (read) and 6 (both)")
        if config.topic_filter_type not in _FILTER_TYPES:
            raise _illegal(f"topicFilterType = {config.topic_filter_type}: allowed are SINGLE_TAG and MULTI_TAG")
        is_mixed = config.attributes.get("+" + MESSAGE_TYPE) == "MIXED"
        if is_mixed and not self._config.broker.enable_mixed_message_type:
            raise _illegal("MIXED message type is not supported.")

    def _check_name(self, topic: str) -> None:
        reason = illegal_topic(topic)
        if reason is not None:
            raise _illegal(reason)
        if self._config.broker.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            raise _illegal(f"The topic[{topic}] is conflict with system topic.")

    async def delete(self, request: Request[DeleteTopicRequestHeader]) -> Response:
        """Delete a topic, its queues, the groups' offsets in it, and its pop retry topics."""
        return await self._delete_all([request.header.topic])

    async def delete_list(self, request: Request[NoHeader]) -> Response:
        """Delete several topics; if one may not be deleted, none is.  There is no limit of topics per second."""
        topics = read_doomed_topics(request.body)
        if not topics:
            raise _illegal("The specified topic list is blank.")
        return await self._delete_all(topics)

    async def _delete_all(self, topics: list[str]) -> Response:
        for topic in topics:
            self._check_name(topic)
        doomed = dict.fromkeys(topics)
        if self._config.broker.clear_retry_topic_when_delete_topic:
            for topic in topics:
                for group in self._offsets.groups_of(topic):
                    retries = retry_topic_v2(topic, group), retry_topic_v1(topic, group)
                    doomed |= dict.fromkeys(name for name in retries if name in self._topics)
                await next_turn()  # each looks at all offsets
        await to_its_end(self._delete(list(doomed)))
        return Response()

    async def _delete(self, doomed: list[str]) -> None:
        # First the file: if it cannot be written, no message is deleted.
        async with self._changing:
            with self._topics.leaving(doomed):
                for name in doomed:
                    self._topics.delete(name)
                await self._topics.save()
                # After the topics: a static topic is never without its mapping.
                for name in doomed:
                    self._mappings.delete(name)
                await self._mappings.save()
                for name in doomed:
                    await remove_queues(self._store.topic_removal(name))
                    self._topics.gone(name)

    async def clean_unused(self, request: Request[NoHeader]) -> Response:
        """Delete the queues of deleted topics."""
        unused = {topic for topic, _ in self._store.queues() if topic not in self._topics}
        for topic in unused:
            if topic not in self._topics and not self._topics.is_system(topic):
                peer_lines.info(logger, "", "event=unused_topic_cleaned topic=%s", topic)
                with self._topics.leaving([topic]):
                    await to_its_end(remove_queues(self._store.topic_removal(topic)))
        return Response()

    # Describing

    def all_configs(self, request: Request[GetAllTopicConfigRequestHeader]) -> Steps:
        """Return all topics that the caller may see, or a page of them, with the data version and their number."""
        header, table, mappings = request.header, self._topics.snapshot(), self._mappings.snapshot()
        shown = yield from only_visible(table.topic_config_table, request)
        part = self._pages.page(
            shown, table.data_version,
            start=header.topic_seq, max_count=header.max_topic_num, known=header.data_version,
        )  # fmt: skip
        # msgspec is faster than `dumps`, for 10,000 topics; the text is the same, because no field is None.
        configs = yield from in_steps(part.items(), dict, msgspec.json.encode)
        found = ((topic, detail) for topic, detail in mappings.topic_queue_mapping_info_map.items() if topic in part)
        details = yield from in_steps(found, dict, dumps)
        content = TopicConfigAndMapping(configs, table.data_version, {}, details, mappings.data_version)
        total = GetAllTopicConfigResponseHeader(total_topic_num=len(shown))
        return Response(header=total, body=msgspec.json.encode(content))

    def config(self, request: Request[GetTopicConfigRequestHeader]) -> Response:
        """Return one topic's configuration; with `lo`, also the mapping of a static topic."""
        config = self._topics.get(request.header.topic)
        if config is None:
            remark = f"No topic in this broker. topic: {request.header.topic}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        detail = self._mappings.get(request.header.topic) if request.header.lo else None
        if detail is None:
            return Response(body=dumps(config))
        return Response(body=dumps(TopicConfigAndQueueMapping(**msgspec.structs.asdict(config), mapping_detail=detail)))

    def stats(self, request: Request[GetTopicStatsInfoRequestHeader]) -> Steps:
        """Return the offsets of every queue, the time of its last message, and the messages put per second."""
        topic = request.header.topic
        config = self._topics.get(topic)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queues = range(max(config.write_queue_nums, config.read_queue_nums))
        table = yield from in_steps((self._extent(topic, queue_id) for queue_id in queues), dict)
        return Response(body=dumps(TopicStatsTable(table, self._put_rates.per_second(topic))))

    def _extent(self, topic: str, queue_id: int) -> tuple[MessageQueue, TopicOffset]:
        low, high = self._tier.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        timestamp = self._store.store_time(topic, queue_id, high - 1) if high > 0 else 0
        queue = MessageQueue(topic, self._config.broker.broker_name, queue_id)
        return queue, TopicOffset(low, high, timestamp)

    def consumed_by(self, request: Request[QueryTopicConsumeByWhoRequestHeader]) -> Response:
        """Return the groups that consume a topic: connected ones, and those with offsets in it."""
        topic = request.header.topic
        groups = self._consumers.groups_subscribed_to(topic) | self._offsets.groups_of(topic)
        return Response(body=dumps(GroupList(sorted(groups))))

    def system_topics(self, request: Request[NoHeader]) -> Response:
        """Return the system topics."""
        return Response(body=dumps(TopicList(sorted(self._topics.system_topics))))


def _config(header: CreateTopicRequestHeader, attributes: dict[str, str]) -> TopicConfig:
    return TopicConfig(
        header.topic, header.read_queue_nums, header.write_queue_nums, header.perm, header.topic_filter_type,
        header.topic_sys_flag or 0, header.order, attributes,
    )  # fmt: skip


def _illegal(remark: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, remark)
