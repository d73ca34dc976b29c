"""What sends need of the configuration, made once for each configuration."""

from broker.config.broker_config import BrokerConfig
from broker.send.replies import SendReplies


class Settled:
    """Responses, and the properties that the broker adds to each message, for one configuration and address."""

    __slots__ = ("_broker", "_store_host", "replies", "suffix")

    def __init__(self, broker: BrokerConfig, store_host: bytes) -> None:
        self._broker = broker
        self._store_host = store_host
        self.replies = SendReplies(store_host, broker.region_id, broker.trace_on)
        trace_on = "true" if broker.trace_on else "false"
        self.suffix = (
            f"MSG_REGION\x01{broker.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{broker.broker_cluster_name}\x02"
        ).encode()

    def is_for(self, broker: BrokerConfig, store_host: bytes) -> bool:
        """Whether nothing has changed since."""
        return self._broker is broker and self._store_host == store_host
