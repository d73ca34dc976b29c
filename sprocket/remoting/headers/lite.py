"""Headers of requests and responses about lite topics.

Names, types and which fields are required: RocketMQ 5.5.1, package `remoting.protocol.header`.
"""

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class PopLiteMessageRequestHeader(Header, kw_only=True):
    """POP_LITE_MESSAGE: messages of all lite topics that the client subscribes.  Times are ms."""

    client_id: str
    consumer_group: str
    topic: str  # the parent
    max_msg_num: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0  # 0 means when it is read
    attempt_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class PopLiteMessageResponseHeader(Header, kw_only=True):
    """What a pop took; the messages may be of several lite topics."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None  # deliveries before this one, of each message, separated by semicolons


class LiteSubscriptionCtlRequestHeader(Header, kw_only=True):
    """LITE_SUBSCRIPTION_CTL; the body is a `LiteSubscriptionCtlRequestBody`."""

    broker_name: str | None = field(name="bname", default=None)


class NotifyUnsubscribeLiteRequestHeader(Header, kw_only=True):
    """NOTIFY_UNSUBSCRIBE_LITE, from a broker to a client or proxy: another client took the lite topic."""

    lite_topic: str
    consumer_group: str
    client_id: str
    broker_name: str | None = field(name="bname", default=None)


class GetParentTopicInfoRequestHeader(Header, kw_only=True):
    """GET_PARENT_TOPIC_INFO."""

    topic: str


class GetLiteTopicInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_TOPIC_INFO."""

    parent_topic: str
    lite_topic: str | None = None


class GetLiteClientInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_CLIENT_INFO; at most `max_count` lite topics are named in the answer."""

    parent_topic: str
    group: str
    client_id: str | None = None
    max_count: Int = 1000


class GetLiteGroupInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_GROUP_INFO: the lag of one lite topic, or the `top_k` lite topics with the largest lag."""

    group: str
    lite_topic: str | None = None
    top_k: Int = 0


class TriggerLiteDispatchRequestHeader(Header, kw_only=True):
    """TRIGGER_LITE_DISPATCH: look again for messages of one client, or of all clients of the group."""

    group: str
    client_id: str | None = None
