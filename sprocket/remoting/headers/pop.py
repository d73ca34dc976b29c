"""Headers of requests and responses about popping.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class PopMessageRequestHeader(Header, kw_only=True):
    """POP_MESSAGE.  Times are ms; `queue_id` -1 means any queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0  # 0 means when it is read
    init_mode: Int  # 0 from the first message, 1 from the end
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = False
    attempt_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class PopMessageResponseHeader(Header, kw_only=True):
    """What a pop took; the three texts are those of `sprocket.remoting.message.pop_extra_info`."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(Header, kw_only=True):
    """PEEK_MESSAGE."""

    topic: str
    queue_id: Int
    max_msg_nums: Int
    consumer_group: str


class AckMessageRequestHeader(Header, kw_only=True):
    """ACK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None  # `topic` is its parent (5.5)
    broker_name: str | None = field(name="bname", default=None)


class ChangeInvisibleTimeRequestHeader(Header, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool | None = None  # whether the message is put off without counting a redelivery (5.5)
    lite_topic: str | None = None  # `topic` is its parent (5.5)
    broker_name: str | None = field(name="bname", default=None)


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """The new handle's parts."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


class NotificationRequestHeader(Header, kw_only=True):
    """NOTIFICATION."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long = 0  # 0: when the broker gets it
    order: bool | None = False
    attempt_id: str | None = None
    exp_type: str | None = None  # kind of the expression in `exp` (5.5)
    exp: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class NotificationResponseHeader(Header, kw_only=True):
    """Whether a pop would find something."""

    has_msg: bool = False
    polling_full: bool | None = False


class PollingInfoRequestHeader(Header, kw_only=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponseHeader(Header, kw_only=True):
    """How many pops are held."""

    polling_num: Int
