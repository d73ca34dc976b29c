"""What all records and responses of sends have in common."""

from broker.config.broker_config import BrokerConfig
from broker.send.replies import SendReplies


class SendForm:
    """Responses, and the properties that the broker adds to each message, for one configuration and address.

    `is_for_kernel`: the properties have no character that would make a kernel leave all messages to the handler.
    """

    __slots__ = ("is_for_kernel", "is_lasting", "replies", "suffix")

    def __init__(self, broker: BrokerConfig, store_host: bytes) -> None:
        self.replies = SendReplies(store_host, broker.region_id, broker.trace_on)
        trace_on = "true" if broker.trace_on else "false"
        self.suffix = (
            f"MSG_REGION\x01{broker.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{broker.broker_cluster_name}\x02"
        ).encode()
        self.is_for_kernel = self.suffix.isascii() and b"#" not in self.suffix
        self.is_lasting = True
