"""Headers of requests and responses about pulling.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class PullMessageRequestHeader(Header, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE; with `lo` false, the queue of a static topic is a physical one."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class PullMessageResponseHeader(Header, kw_only=True):
    """What a pull found and where to go on."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None
