"""Settings of a broker, without those of its store: names, addresses and behaviour.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, `BrokerIdentity`, `NettyServerConfig`, and of
brokerRole, haListenPort, flushDelayOffsetInterval and enableCleanExpiredOffset `MessageStoreConfig`.
"""

import os
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.config.acting_settings import ActingSettings
from broker.config.beside_settings import BesideSettings
from broker.config.cold_settings import ColdSettings
from broker.config.controller_settings import ControllerSettings
from broker.config.idempotence_settings import IdempotenceSettings
from broker.config.lite_settings import LiteSettings
from broker.config.local_address import host_name, local_address
from broker.config.metric_switches import MetricSwitches
from broker.config.overload_settings import OverloadSettings
from broker.config.pop_settings import PopSettings
from broker.config.security_settings import SecuritySettings
from sprocket.common.config.setting_fields import bool_setting, int_setting, made_setting, setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.common.logs.settings import LogSettings
from sprocket.metrics.health import HealthSettings
from sprocket.metrics.settings import MetricsSettings
from sprocket.remoting.message.topic_names import TRACE_TOPIC
from sprocket.remoting.serving.listener_settings import ListenerSettings

_ADDRESS = re.compile(r"(?:[^\s:;\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


class BrokerRole(StrEnum):
    """Role of a broker within its broker group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True)
class BrokerConfig(
    PopSettings,
    LiteSettings,
    ActingSettings,
    ControllerSettings,
    SecuritySettings,
    BesideSettings,
    OverloadSettings,
    IdempotenceSettings,
    ColdSettings,
    MetricsSettings,
    MetricSwitches,
    HealthSettings,
    LogSettings,
    ListenerSettings,
):
    """Settings of a broker, without those of its store."""

    broker_name: str = made_setting(
        host_name,
        "Name of the broker group: the master and its slaves, which share the queues.",
        default_text="the host name",
    )
    broker_cluster_name: str = text_setting("DefaultCluster", "Cluster that the broker belongs to.")
    broker_id: int = int_setting(0, "0 for the master, above 0 for slaves; ignored with enableControllerMode.", -1)
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "ASYNC_MASTER responds at once, SYNC_MASTER when a slave has the message; SLAVE replicates.",
        allowed=tuple(BrokerRole),
    )
    namesrv_addr: str = made_setting(
        lambda: os.environ.get("NAMESRV_ADDR", ""),
        "Name servers to register with: `host:port`, several separated by `;`.",
        default_text="$NAMESRV_ADDR",
    )
    broker_ip1: str = made_setting(
        local_address, "Address that is registered for clients.", default_text="the local address", key="brokerIP1"
    )
    broker_ip2: str = made_setting(
        local_address, "Address that is registered for slaves.", default_text="the local address", key="brokerIP2"
    )
    listen_port: int = int_setting(10911, "Port for clients; 0 means a free port.", 0, maximum=65535)
    ha_listen_port: int = int_setting(
        0, "Port that is registered for slaves; 0 means listenPort + 1.", 0, maximum=65535
    )
    broker_permission: int = setting(
        6, "Permission of clients: 4 read, 2 write, 6 both.", allowed=(2, 4, 6), mutable=True
    )
    default_topic_queue_nums: int = int_setting(
        8, "Max queues of a topic that is created on first use.", 1, maximum=1024, mutable=True
    )
    auto_create_topic_enable: bool = bool_setting(True, "A send to an unknown topic creates it.", mutable=True)
    cluster_topic_enable: bool = bool_setting(
        True, "Create the topic named after the cluster; new topics may be modelled on it."
    )
    broker_topic_enable: bool = bool_setting(True, "Create the topic named after the broker, with one queue.")
    auto_create_subscription_group: bool = bool_setting(True, "A pull of an unknown group creates it.", mutable=True)
    trace_topic_enable: bool = bool_setting(False, "Create the topic for message traces.")
    msg_trace_topic_name: str = text_setting(TRACE_TOPIC, "Name of the topic for traces.")
    trace_on: bool = bool_setting(True, "Tell producers that this broker wants traces.", mutable=True)
    region_id: str = text_setting("DefaultRegion", "Region in the response to a send, for traces.")
    estimate_accumulation: bool = bool_setting(
        True, "Metrics of lags count only messages that a group wants, if it subscribes to some tags.", mutable=True
    )
    metrics_otel_cardinality_limit: int = int_setting(50_000, "Max series of one metric; more are not exported.", 1)
    long_polling_enable: bool = bool_setting(True, "Hold a pull that finds no message until one arrives.", mutable=True)
    short_polling_time_mills: int = int_setting(
        1_000, "How long a pull is held when longPollingEnable is false.", 1, "ms", mutable=True
    )
    notify_consumer_ids_changed_enable: bool = bool_setting(
        True, "Tell the consumers of a group when one joins or leaves.", mutable=True
    )
    channel_expired_timeout: int = int_setting(
        120_000, "Clients are removed after this time without a heartbeat.", 1, "ms", mutable=True
    )
    pop_polling_size: int = int_setting(
        1_024, "Max held pops for one queue of a topic and group, or for all its queues.", 1, mutable=True
    )
    pop_polling_map_size: int = int_setting(
        100_000, "Max queues with held pops, over all topics and groups.", 1, mutable=True
    )
    max_pop_polling_size: int = int_setting(100_000, "Max held pops; further ones get POLLING_FULL.", 1, mutable=True)
    pop_long_polling_force_notify_interval: int = int_setting(
        800,
        "Each time a queue gets this many messages, wake a held pop even if its filter matches none; 0 means never.",
        0,
        mutable=True,
    )
    slave_read_enable: bool = bool_setting(
        False,
        "On a master: redirect consumers with a large lag to the slave of their group; on a slave: serve their pulls.",
        mutable=True,
    )
    lite_pull_message_enable: bool = bool_setting(True, "Serve LITE_PULL_MESSAGE.", mutable=True)
    start_accept_send_request_time_stamp: int = int_setting(
        0, "Sends before this time are refused.", 0, "ms", mutable=True
    )
    broker_fast_failure_enable: bool = bool_setting(
        True, "Refuse sends as SYSTEM_BUSY while the disk is slow; if false they wait.", mutable=True
    )
    enable_property_filter: bool = bool_setting(False, "Let consumers filter by SQL92 over properties.", mutable=True)
    filter_support_retry: bool = bool_setting(
        False, "A SQL92 pull of a retry topic filters by the group's subscription to the original topic.", mutable=True
    )
    filter_data_clean_time_span: int = int_setting(
        86_400_000, "The filter of a group expires after this time without members.", 1, "ms", mutable=True
    )
    enable_notify_after_pop_order_lock_release: bool = bool_setting(
        True, "Wake held orderly pops when a queue is unlocked.", mutable=True
    )
    use_server_side_reset_offset: bool = bool_setting(
        True,
        "A reset sets a group's offset on the broker; if false, the connected consumers are told to commit it.",
        mutable=True,
    )
    enable_clean_expired_offset: bool = bool_setting(
        False, "Every hour, delete the offsets of empty groups whose unread messages have all expired.", mutable=True
    )
    enable_mixed_message_type: bool = bool_setting(
        False, "Allow topics with message.type=MIXED; only the proxy enforces message types.", mutable=True
    )
    enable_lmq_stats: bool = bool_setting(
        False, "With enableLmq: keep statistics for each light topic and group.", mutable=True
    )
    enable_create_sys_group: bool = bool_setting(
        True,
        "Create groups with prefix CID_RMQ_SYS_ on first use, also without autoCreateSubscriptionGroup.",
        mutable=True,
    )
    enable_broadcast_offset_store: bool = bool_setting(
        True, "Keep the offsets of the members of broadcasting groups, for proxies.", mutable=True
    )
    broadcast_offset_expire_second: int = int_setting(
        120,
        "The offsets of a disconnected member of a broadcasting group expire after this time.",
        1,
        "s",
        mutable=True,
    )
    broadcast_offset_expire_max_second: int = int_setting(
        300,
        "The offsets of a connected member of a broadcasting group expire after this time without a pull.",
        1,
        "s",
        mutable=True,
    )
    reject_transaction_message: bool = bool_setting(False, "Refuse transactional messages.", mutable=True)
    transaction_time_out: int = int_setting(
        6_000, "Min age of a transaction before its producer is asked about it.", 1, "ms", mutable=True
    )
    transaction_check_max: int = int_setting(
        15, "Max checks of a transaction; then it moves to TRANS_CHECK_MAX_TIME_TOPIC.", 1, mutable=True
    )
    transaction_check_interval: int = int_setting(
        30_000, "Interval at which producers are asked about open transactions.", 1, "ms", mutable=True
    )
    transaction_op_msg_max_size: int = int_setting(
        4_096, "Max size of a message that lists ended transactions.", 1, "bytes", mutable=True
    )
    recall_message_enable: bool = bool_setting(
        False, "Let producers recall messages that wait in the timer wheel.", mutable=True
    )
    allow_recall_when_broker_not_writeable: bool = bool_setting(
        True, "Allow recalls while brokerPermission forbids writes.", mutable=True
    )
    store_reply_message_enable: bool = bool_setting(
        True, "Also store the replies of request-reply that are pushed.", mutable=True
    )
    reply_thread_pool_queue_capacity: int = int_setting(
        10_000, "Max replies that wait for their requesters; further ones are refused as SYSTEM_BUSY.", 1, mutable=True
    )
    server_load_balancer_enable: bool = bool_setting(
        True, "Divide queues among the consumers that query their assignment; if false, each gets all.", mutable=True
    )
    default_message_request_mode: str = setting(
        "PULL",
        "Consume mode of groups without a set mode, if the broker assigns their queues.",
        allowed=("PULL", "POP"),
        mutable=True,
    )
    default_pop_share_queue_num: int = int_setting(
        -1,
        "With default mode POP: number of other consumers from whose queues a consumer also pops; -1 means all.",
        -1,
        mutable=True,
    )
    load_balance_poll_name_server_interval: int = int_setting(
        30_000,
        "Interval at which the routes of assigned topics are refreshed from name servers.",
        1,
        "ms",
        mutable=True,
    )
    flush_consumer_offset_interval: int = int_setting(
        5_000, "Interval of writes of consumerOffset.json.", 1, "ms", mutable=True
    )
    flush_delay_offset_interval: int = int_setting(
        10_000, "Interval of writes of delayOffset.json.", 1, "ms", mutable=True
    )
    register_name_server_period: int = int_setting(
        30_000, "Interval of registrations; limited to 10 to 60 seconds.", 1, "ms", mutable=True
    )
    register_broker_timeout_mills: int = int_setting(24_000, "Timeout of a registration.", 1, "ms", mutable=True)
    force_register: bool = bool_setting(
        True, "Register at each interval; if false, only when the data version differs.", mutable=True
    )
    compressed_register: bool = bool_setting(False, "Compress the body of a registration.", mutable=True)
    enable_single_topic_register: bool = bool_setting(
        False,
        "Register changed topics with REGISTER_TOPIC_IN_NAMESRV; if false, as a part of the topic list.",
        mutable=True,
    )
    enable_split_registration: bool = bool_setting(
        False,
        "Register topics in parts; name servers then keep the routes of topics that are not in a registration.",
        mutable=True,
    )
    enable_split_metadata: bool = bool_setting(
        True,
        "Give slaves that ask for a page of the tables of topics and groups a page, as RocketMQ 5.3.4 does.",
        mutable=True,
    )
    split_metadata_size: int = int_setting(2000, "Max topics or groups of a page.", 1, mutable=True)
    split_registration_size: int = int_setting(
        800, "Max topics of a part with enableSplitRegistration.", 1, mutable=True
    )
    validate_system_topic_when_update_topic: bool = bool_setting(True, "Refuse to change system topics.", mutable=True)
    clear_retry_topic_when_delete_topic: bool = bool_setting(
        True, "Deleting a topic deletes its pop retry topics.", mutable=True
    )

    @property
    def name_servers(self) -> list[str]:
        """Addresses in `namesrv_addr`, in their order."""
        return [address for address in (part.strip() for part in self.namesrv_addr.split(";")) if address]

    @property
    def address(self) -> str:
        """Address of this broker for clients, as it is registered."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def ha_address(self) -> str:
        """Address of this broker for slaves, as it is registered."""
        return f"{self.broker_ip2}:{self.ha_listen_port}"

    def with_ports(self, listen_port: int) -> "BrokerConfig":
        """Return a copy with the real ports; without haListenPort, slaves get the port after `listen_port`."""
        return replace(self, listen_port=listen_port, ha_listen_port=self.ha_listen_port or listen_port + 1)

    def check(self) -> None:
        """Raise ConfigError for settings with which the broker cannot start."""
        for address in self.name_servers:
            if not _ADDRESS.fullmatch(address):
                raise ConfigError(
                    f"namesrvAddr = {self.namesrv_addr!r}: allowed is host:port, several separated by ; "
                    "as in 127.0.0.1:9876;192.168.0.1:9876"
                )
        if self.listen_port and self.listen_port == self.ha_listen_port:
            raise ConfigError(f"haListenPort = {self.ha_listen_port}: equal to listenPort, choose another port")
        if self.enable_controller_mode and self.enable_slave_acting_master:
            raise ConfigError(
                "enableSlaveActingMaster and enableControllerMode: set one of them; with controllers no slave acts,"
                " because one is elected"
            )
        if not self.enable_controller_mode:
            self._check_id()
        if not self.broker_name or not self.broker_cluster_name:
            raise ConfigError("brokerName and brokerClusterName: allowed is text that is not empty")
        self.check_auth()
        self.check_log()

    def _check_id(self) -> None:
        if self.broker_id < 0:
            raise ConfigError(f"brokerId = {self.broker_id}: allowed is this only with enableControllerMode")
        if self.broker_role is not BrokerRole.SLAVE and self.broker_id != 0:
            raise ConfigError(f"brokerId = {self.broker_id}: a broker with role {self.broker_role} needs brokerId 0")
        if self.broker_role is BrokerRole.SLAVE and self.broker_id == 0:
            raise ConfigError("brokerId = 0: a broker with role SLAVE needs a brokerId above 0, unique in its group")
