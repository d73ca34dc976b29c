"""Headers of requests and responses about administration.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

import msgspec
from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class CreateTopicRequestHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC and UPDATE_AND_CREATE_STATIC_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


class GetTopicConfigRequestHeader(Header, kw_only=True):
    """GET_TOPIC_CONFIG; with `lo`, the mapping of a static topic is wanted, too."""

    topic: str
    lo: bool | None = None
    broker_name: str | None = field(name="bname", default=None)


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """GET_ALL_TOPIC_CONFIG: the whole table, or with any field a page of it (RocketMQ 5.3.4)."""

    topic_seq: Int | None = None  # number of the first topic
    max_topic_num: Int | None = None
    data_version: str | None = None  # of the last page, as JSON


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """Number of topics in the whole table."""

    total_topic_num: Int


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the whole table, or with any field a page of it (RocketMQ 5.3.4)."""

    group_seq: Int | None = None  # number of the first group
    max_group_num: Int | None = None
    data_version: str | None = None  # of the last page, as JSON


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """Number of groups in the whole table."""

    total_group_num: Int


class GetTopicStatsInfoRequestHeader(Header, kw_only=True):
    """GET_TOPIC_STATS_INFO."""

    topic: str
    lo: bool | None = None
    broker_name: str | None = field(name="bname", default=None)


class GetConsumeStatsRequestHeader(Header, kw_only=True):
    """GET_CONSUME_STATS."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class DeleteSubscriptionGroupRequestHeader(Header, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool = False


class UpdateGroupForbiddenRequestHeader(Header, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None


class CloneGroupOffsetRequestHeader(Header, kw_only=True):
    """CLONE_GROUP_OFFSET; without a topic, of all topics of the group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetSubscriptionGroupConfigRequestHeader(Header, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """Version of the configuration."""

    version: str


class QueryTopicConsumeByWhoRequestHeader(Header, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryTopicsByConsumerRequestHeader(Header, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(Header, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(Header, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QueryMessageRequestHeader(Header, kw_only=True):
    """QUERY_MESSAGE: by key."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    # "true": `key` is a unique key.  RocketMQ's clients send it beside the declared fields.
    is_unique_key: str | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, kw_only=True):
    """How far the index has come."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID: by physical offset."""

    topic: str | None = None
    offset: Long


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class GetConsumerStatusRequestHeader(Header, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_STATUS_FROM_CLIENT; `client_addr` is a client's id."""

    topic: str
    group: str
    client_addr: str | None = None


class QueryCorrectionOffsetHeader(Header, kw_only=True):
    """QUERY_CORRECTION_OFFSET; `filter_groups` are names with commas between them."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class QueryConsumeQueueRequestHeader(Header, kw_only=True):
    """QUERY_CONSUME_QUEUE: `count` entries from `index` on."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS; `is_order`: only ordered topics."""

    is_order: bool


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE."""

    topic: str | None = None
    msg_id: str | None = None
