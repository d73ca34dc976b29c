"""What a name server can be told.

Source of names and defaults: RocketMQ 5.3.3, `NamesrvConfig`, `NettyServerConfig`, `NamesrvStartup`.
"""

from dataclasses import dataclass, field
from pathlib import Path


def _bool(key: str, default: bool, doc: str, *, mutable: bool = False) -> bool:
    return field(default=default, metadata={"key": key, "doc": doc, "mutable": mutable})


@dataclass(frozen=True)
class NamesrvConfig:
    """The configuration of a name server."""

    bind_address: str = field(default="0.0.0.0", metadata={"key": "bindAddress", "doc": "Address to listen on."})
    listen_port: int = field(
        default=9876,
        metadata={
            "key": "listenPort",
            "doc": "Port for brokers and clients; 0 takes a free one.",
            "minimum": 0,
            "maximum": 65535,
        },
    )
    server_channel_max_idle_time_seconds: int = field(
        default=120,
        metadata={
            "key": "serverChannelMaxIdleTimeSeconds",
            "doc": "A connection that is silent this long is closed.",
            "minimum": 1,
            "unit": "s",
        },
    )
    kv_config_path: Path = field(
        default_factory=lambda: Path.home() / "namesrv" / "kvConfig.json",
        metadata={"key": "kvConfigPath", "doc": "File of the KV configuration."},
    )
    scan_not_active_broker_interval: int = field(
        default=5_000,
        metadata={
            "key": "scanNotActiveBrokerInterval",
            "doc": "How often silent brokers are looked for.",
            "minimum": 1,
            "unit": "ms",
        },
    )
    order_message_enable: bool = _bool(
        "orderMessageEnable", False, "Routes carry the order configuration of their topic.", mutable=True
    )
    return_order_topic_config_to_broker: bool = _bool(
        "returnOrderTopicConfigToBroker",
        True,
        "The answer to a registration carries the order configuration.",
        mutable=True,
    )
    delete_topic_with_broker_registration: bool = _bool(
        "deleteTopicWithBrokerRegistration",
        False,
        "A topic that a broker's registration no longer names is removed from its routes.",
        mutable=True,
    )
    support_acting_master: bool = _bool(
        "supportActingMaster", False, "A slave may stand in for a lost master in routes.", mutable=True
    )
    enable_all_topic_list: bool = _bool("enableAllTopicList", True, "Answer requests for all topics.", mutable=True)
    enable_topic_list: bool = _bool(
        "enableTopicList", True, "Answer requests for the topics of a cluster, of the system or of units.", mutable=True
    )
    notify_min_broker_id_changed: bool = _bool(
        "notifyMinBrokerIdChanged",
        False,
        "Brokers of a group are told when the smallest broker id of the group changes.",
        mutable=True,
    )
    need_wait_for_service: bool = _bool(
        "needWaitForService",
        False,
        "Routes are refused for a while after the start, until brokers have registered.",
        mutable=True,
    )
    wait_seconds_for_service: int = field(
        default=45,
        metadata={
            "key": "waitSecondsForService",
            "doc": "How long routes are refused with needWaitForService.",
            "minimum": 0,
            "unit": "s",
            "mutable": True,
        },
    )
