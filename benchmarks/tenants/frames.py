"""Requests of both tenants, and the topics and quotas that they have."""

import time
from typing import Final

from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2

GOOD: Final = "good%Orders"
FLOOD: Final = "evil%Flood"
COLD: Final = "evil%Cold"
QUEUES: Final = 4
BODY: Final = bytes(97 + number % 26 for number in range(1024))
# `PullSysFlag`: the subscription is in the request; the pull may be held.
_WITH_SUBSCRIPTION: Final = 0x4
_MAY_WAIT: Final = 0x2
QUOTA: Final = {
    "messages_in": 2000, "bytes_in": 4_000_000, "messages_out": 4000, "bytes_out": 8_000_000, "requests": 2000,
}  # fmt: skip


def send_header(topic: str, number: int) -> SendMessageRequestHeaderV2:
    """Return the header of the send with a number, which also chooses the queue."""
    return SendMessageRequestHeaderV2(
        producer_group="PG", topic=topic, default_topic="TBW102", default_topic_queue_nums=QUEUES,
        queue_id=number % QUEUES, sys_flag=0, born_timestamp=time.time_ns() // 1_000_000, flag=0,
        properties=f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01TagA\x02",
    )  # fmt: skip


def pull_header(
    group: str, topic: str, queue_id: int, offset: int, *, expression: str = "*", kind: str = "TAG", wait_ms: int = 0,
    at_most: int = 32,
) -> PullMessageRequestHeader:  # fmt: skip
    """Return a pull of some messages, which is held for `wait_ms` if there are none."""
    return PullMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=at_most,
        sys_flag=_WITH_SUBSCRIPTION | (_MAY_WAIT if wait_ms else 0), commit_offset=0, suspend_timeout_millis=wait_ms,
        sub_version=0, subscription=expression, expression_type=kind,
    )  # fmt: skip
