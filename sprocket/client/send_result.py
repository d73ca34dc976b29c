"""Result of a send, as the application gets it."""

from enum import Enum

from sprocket.remoting.bodies.client import MessageQueue


class SendStatus(Enum):
    """Durability of a message that a broker took.  Source: RocketMQ 5.3.3, `SendStatus`."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult:
    """Place of a stored message.  `message_id` is the producer's (UNIQ_KEY); for a batch, all ids with commas.

    `recall_handle` is set for a message with `delay` or `deliver_at` if the broker can recall it.

    `duplicates` is the number of the request's idempotent messages that the broker already had; the place is then
    that of the first one.  None if the broker looks for no duplicates, as RocketMQ's.
    """

    __slots__ = (
        "duplicates",
        "message_id",
        "offset_message_id",
        "queue",
        "queue_offset",
        "recall_handle",
        "status",
        "transaction_id",
    )

    def __init__(
        self,
        status: SendStatus,
        message_id: str,
        offset_message_id: str,
        queue: MessageQueue,
        queue_offset: int,
        transaction_id: str | None = None,
        recall_handle: str | None = None,
        duplicates: int | None = None,
    ) -> None:
        self.status = status
        self.duplicates = duplicates
        self.message_id = message_id
        self.offset_message_id = offset_message_id
        self.queue = queue
        self.queue_offset = queue_offset
        self.transaction_id = transaction_id
        self.recall_handle = recall_handle

    def __repr__(self) -> str:
        where = f"{queue_name(self.queue)}, queue_offset={self.queue_offset}"
        return f"SendResult({self.status.name}, {self.message_id}, {where})"


def queue_name(queue: MessageQueue) -> str:
    """Return a queue in few characters, for logs: ``broker-a/Flights/3``."""
    return f"{queue.broker_name}/{queue.topic}/{queue.queue_id}"
