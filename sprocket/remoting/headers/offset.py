"""Headers of requests and responses about offsets.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.  With `lo` false, the
queue of a static topic is a physical one.
"""

from typing import Final

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class QueryConsumerOffsetRequestHeader(Header, kw_only=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """The committed offset."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(Header, kw_only=True):
    """UPDATE_CONSUMER_OFFSET: commit."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetMaxOffsetRequestHeader(Header, kw_only=True):
    """GET_MAX_OFFSET."""

    topic: str
    queue_id: Int
    committed: bool = True
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """One past the last offset."""

    offset: Long


class GetMinOffsetRequestHeader(Header, kw_only=True):
    """GET_MIN_OFFSET."""

    topic: str
    queue_id: Int
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """The first offset that still exists."""

    offset: Long


class SearchOffsetRequestHeader(Header, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` is LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """The offset found."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(Header, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """Store time of the first message, ms."""

    timestamp: Long


NO_OFFSET: Final = -2
"""In `ResetOffsetRequestHeader` with `lo` false: remove the group's offset; only between Sprocket's brokers."""


class ResetOffsetRequestHeader(Header, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET."""

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None
