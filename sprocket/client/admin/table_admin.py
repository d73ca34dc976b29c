"""Administration of a broker's tables of topics and consumer groups.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl`; of what belongs to users: `DefaultMQAdminExtImpl`.
"""

from typing import Final, TypeVar

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupTable
from sprocket.remoting.bodies.topic import (
    PERM_PRIORITY,
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader, GetTopicConfigRequestHeader
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    dlq_topic,
    retry_topic,
)

T = TypeVar("T")
# Groups that RocketMQ's tools and clients use themselves (`MixAll.PREDEFINE_GROUP_SET`).
_PREDEFINED_GROUPS: Final = frozenset(SYSTEM_GROUPS) | {
    "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
}  # fmt: skip
_TABLE_TIMEOUT_S: Final = 10.0


class TableAdmin:
    """Client of the brokers that `admin` finds.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    # Topics

    async def create_topics(self, broker: str, configs: list[TopicConfig]) -> None:
        """Create topics on a broker, or change them.  Attributes are changes: ``+name`` and ``-name``."""
        body = dumps(CreateTopicListRequestBody(configs))
        await self._admin.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    async def topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return a topic of a broker, None if there is none."""
        try:
            header = GetTopicConfigRequestHeader(topic=topic)
            response = await self._admin.ask(broker, RequestCode.GET_TOPIC_CONFIG, header)
        except AdminError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return _decoded(response, TopicConfig)

    async def user_topics(self, broker: str, *, with_retry: bool) -> TopicConfigTable:
        """Return the topics of users on a broker; `with_retry`: their retry and dead-letter topics, too."""
        ask = self._admin.ask
        response = await ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=_TABLE_TIMEOUT_S)
        found = _decoded(response, TopicConfigTable)
        own_response = await ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, timeout_s=_TABLE_TIMEOUT_S)
        own = SYSTEM_TOPICS | set(_decoded(own_response, TopicList).topic_list)
        hidden = (SYSTEM_TOPIC_PREFIX,) if with_retry else (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
        found.topic_config_table = {
            name: config
            for name, config in found.topic_config_table.items()
            if name not in own and not name.startswith(hidden) and 0 <= config.perm < PERM_PRIORITY
        }
        return found

    # Groups

    async def create_groups(self, broker: str, configs: list[SubscriptionGroupConfig]) -> None:
        """Create groups on a broker, or change them, all or none."""
        body = dumps(SubscriptionGroupList(configs))
        await self._admin.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def create_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Create a group on a broker, or change it."""
        await self._admin.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(config))

    async def delete_group(self, broker: str, group: str, *, with_offsets: bool) -> None:
        """Delete a group from a broker; `with_offsets`: its offsets, too."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=with_offsets)
        await self._admin.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def delete_group_topics(self, group: str, cluster: str) -> None:
        """Delete the retry and the dead-letter topic of a group from a cluster."""
        for topic in (retry_topic(group), dlq_topic(group)):
            await self._admin.delete_topic(topic, cluster)

    async def groups(self, broker: str) -> SubscriptionGroupTable:
        """Return all groups of a broker."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return _decoded(await self._admin.ask(broker, code, timeout_s=_TABLE_TIMEOUT_S), SubscriptionGroupTable)

    async def user_groups(self, broker: str) -> SubscriptionGroupTable:
        """Return the groups of users on a broker."""
        found = await self.groups(broker)
        found.subscription_group_table = {
            name: config
            for name, config in found.subscription_group_table.items()
            if not name.startswith(SYSTEM_GROUP_PREFIX) and name not in _PREDEFINED_GROUPS
        }
        return found


def _decoded(response: ReceivedResponse, body_type: type[T]) -> T:
    try:
        return loads(bytes(response.body), body_type)
    except ProtocolError as error:
        raise AdminError(f"the answer is no {body_type.__name__}: {error}") from None
