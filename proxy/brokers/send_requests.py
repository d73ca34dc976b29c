"""Requests that send.  They are frequent, so the header of those to one queue is encoded only once; pure."""

from functools import lru_cache
from typing import Final

from sprocket.client.send.send_header import SendHeader
from sprocket.client.send.send_request import SendSettings, header_to
from sprocket.remoting.bodies.client import MessageQueue

SEND_SETTINGS: Final = SendSettings()
_KNOWN: Final = 4096


@lru_cache(_KNOWN)
def send_header(code: int, queue: MessageQueue, sharding_queues: int | None = None) -> SendHeader:
    """Return the encoder of the requests with this code to `queue`; the producer group is the topic.

    `sharding_queues` is the number of queues that a message group chose from; None without a group.
    """
    return header_to(queue, queue.topic, SEND_SETTINGS, code, sharding_queues)
