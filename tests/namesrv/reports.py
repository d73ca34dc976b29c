"""Short forms of brokers' reports, for the tests of this folder."""

from collections.abc import Sequence

from namesrv import registration
from namesrv.config import NamesrvConfig
from namesrv.registration import Registered
from namesrv.route_table import RouteInfo
from sprocket.remoting.bodies.registration import RegisterBrokerBody, TopicConfigAndMapping
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from sprocket.remoting.headers.namesrv import RegisterBrokerRequestHeader

CLUSTER = "c"
# Topics in every broker's list.
FIXED = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", CLUSTER, "broker-a")


def header(
    name: str = "broker-a",
    addr: str = "10.0.0.1:10911",
    broker_id: int = 0,
    *,
    cluster: str = CLUSTER,
    acting: bool | None = None,
    timeout_ms: int | None = None,
    zone: str | None = None,
) -> RegisterBrokerRequestHeader:
    return RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=addr,
        cluster_name=cluster,
        ha_server_addr=addr + "2",
        broker_id=broker_id,
        heartbeat_timeout_millis=timeout_ms,
        enable_acting_master=acting,
        zone_name=zone,
    )


def body(
    topics: Sequence[str | TopicConfig] = ("t", "u"),
    version: int = 1,
    *,
    state_version: int = 0,
    filter_servers: Sequence[str] = (),
    mappings: Sequence[TopicQueueMappingInfo] = (),
) -> RegisterBrokerBody:
    configs = [topic if isinstance(topic, TopicConfig) else TopicConfig(topic, 4, 4) for topic in topics]
    wrapper = TopicConfigAndMapping(
        {config.topic_name: config for config in configs},
        DataVersion(state_version, 1000, version),
        {mapping.topic or "": mapping for mapping in mappings},
    )
    return RegisterBrokerBody(wrapper, list(filter_servers))


class Reports:
    """A table and the calls that fill it; every registration takes 1 ms."""

    def __init__(self, config: NamesrvConfig | None = None, *, marks_parts: bool = False) -> None:
        self.table = RouteInfo()
        self.marks_parts = marks_parts
        self.config = NamesrvConfig() if config is None else config
        self.now_ms = 0

    def register(
        self, to: RegisterBrokerRequestHeader | None = None, of: RegisterBrokerBody | None = None, channel_id: int = 1
    ) -> Registered:
        answer = self.try_register(to, of, channel_id)
        assert answer is not None
        return answer

    def try_register(
        self, to: RegisterBrokerRequestHeader | None = None, of: RegisterBrokerBody | None = None, channel_id: int = 1
    ) -> Registered | None:
        self.now_ms += 1
        return registration.register(
            self.table, to or header(), of or body(), channel_id, self.config, self.now_ms, marks_parts=self.marks_parts
        )
