"""Readers of the bodies of requests: within their limits, or ProtocolError.

Access control and the handlers read a body by the same function, so that both refuse the same.
"""

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import CheckClientRequestBody, LockBatchRequestBody
from sprocket.remoting.bodies.controller import BrokerGroupState, SyncStateSet
from sprocket.remoting.bodies.group import (
    DeleteSubscriptionGroupListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from sprocket.remoting.bodies.lite import LiteSubscriptionCtlRequestBody
from sprocket.remoting.bodies.pop import (
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from sprocket.remoting.bodies.route import TopicRouteData, has_possible_queues
from sprocket.remoting.bodies.topic import CreateTopicListRequestBody, DataVersion, TopicConfig, TopicList
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail
from sprocket.remoting.codec.body_limits import LISTS, MAPPING, QUEUES, SETTINGS, SMALL, check_count
from sprocket.remoting.codec.fastjson import loads


def read_lock_batch(body: bytes) -> LockBatchRequestBody:
    """Return the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""
    content = loads(body, LockBatchRequestBody, QUEUES)
    check_count("queues", content.mq_set, limits.MAX_LOCKED_QUEUES)
    return content


def read_topic_list(body: bytes) -> list[TopicConfig]:
    """Return the topics of UPDATE_AND_CREATE_TOPIC_LIST."""
    configs = loads(body, CreateTopicListRequestBody, LISTS).topic_config_list
    check_count("topics", configs, limits.MAX_LISTED_TOPICS)
    return configs


def read_mapping(body: bytes) -> TopicQueueMappingDetail:
    """Return the body of UPDATE_AND_CREATE_STATIC_TOPIC."""
    return loads(body, TopicQueueMappingDetail, MAPPING)


def read_group_list(body: bytes) -> list[SubscriptionGroupConfig]:
    """Return the groups of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""
    configs = loads(body, SubscriptionGroupList, LISTS).group_config_list
    check_count("groups", configs, limits.MAX_LISTED_GROUPS)
    return configs


def read_doomed_topics(body: bytes) -> list[str]:
    """Return the topics of DELETE_TOPIC_IN_BROKER_LIST, each once."""
    names = loads(body, TopicList, LISTS).topic_list
    check_count("topics", names, limits.MAX_LISTED_TOPICS)
    return list(dict.fromkeys(names))


def read_doomed_groups(body: bytes) -> DeleteSubscriptionGroupListRequestBody:
    """Return the body of DELETE_SUBSCRIPTION_GROUP_LIST."""
    content = loads(body, DeleteSubscriptionGroupListRequestBody, LISTS)
    check_count("groups", content.group_name_list, limits.MAX_LISTED_GROUPS)
    return content


def read_group(body: bytes) -> SubscriptionGroupConfig:
    """Return the group of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    return loads(body, SubscriptionGroupConfig, SETTINGS)


def read_batch_ack(body: bytes) -> BatchAckMessageRequestBody:
    """Return the body of BATCH_ACK_MESSAGE; without one there is nothing to acknowledge."""
    content = loads(body, BatchAckMessageRequestBody, LISTS) if body else BatchAckMessageRequestBody()
    check_count("acknowledgements", content.acks, limits.MAX_BATCH_ACKS)
    return content


def read_lite_subscriptions(body: bytes) -> LiteSubscriptionCtlRequestBody:
    """Return the body of LITE_SUBSCRIPTION_CTL; without one it has no changes."""
    return loads(body, LiteSubscriptionCtlRequestBody, LISTS) if body else LiteSubscriptionCtlRequestBody()


def read_check_client(body: bytes) -> CheckClientRequestBody:
    """Return the body of CHECK_CLIENT_CONFIG; without one there is nothing to check."""
    return loads(body, CheckClientRequestBody, SETTINGS) if body else CheckClientRequestBody()


def read_assignment_query(body: bytes) -> QueryAssignmentRequestBody:
    """Return the body of QUERY_ASSIGNMENT."""
    return loads(body, QueryAssignmentRequestBody, SMALL)


def read_request_mode(body: bytes) -> SetMessageRequestModeRequestBody:
    """Return the body of SET_MESSAGE_REQUEST_MODE."""
    return loads(body, SetMessageRequestModeRequestBody, SMALL)


def read_topic_route(body: bytes) -> TopicRouteData:
    """Return the body of REGISTER_TOPIC_IN_NAMESRV; without one the topic has no queues."""
    data = loads(body, TopicRouteData, SETTINGS) if body else TopicRouteData()
    if not all(map(has_possible_queues, data.queue_datas)):
        raise ProtocolError("body", f"a broker has no more than {limits.MAX_TOPIC_QUEUES} queues of a topic")
    return data


def read_data_version(body: bytes) -> DataVersion:
    """Return the body of QUERY_DATA_VERSION."""
    return loads(body, DataVersion, SMALL)


def read_sync_state_set(body: bytes) -> SyncStateSet:
    """Return the body of CONTROLLER_ALTER_SYNC_STATE_SET."""
    content = loads(body, SyncStateSet, SMALL)
    check_count("replicas", content.sync_state_set, limits.MAX_GROUP_REPLICAS)
    return content


def read_broker_group(body: bytes) -> BrokerGroupState:
    """Return the group of ADOPT_BROKER_GROUP."""
    group = loads(body, BrokerGroupState, LISTS)
    check_count("brokers", group.brokers, limits.MAX_GROUP_REPLICAS)
    return group


def read_broker_names(body: bytes) -> list[str]:
    """Return the body of CONTROLLER_GET_SYNC_STATE_DATA; without one no group is asked for."""
    names = loads(body, list[str], LISTS) if body else []
    check_count("broker names", names, limits.MAX_SYNC_STATE_NAMES)
    return names
