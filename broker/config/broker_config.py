"""What a broker can be told, beside what its store can: names, addresses and behaviour.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, `BrokerIdentity`, `NettyServerConfig`, and of
brokerRole, haListenPort, flushDelayOffsetInterval and enableCleanExpiredOffset `MessageStoreConfig`.
"""

import os
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from broker.config.acting_settings import ActingSettings
from broker.config.cold_settings import ColdSettings
from broker.config.local_address import host_name, local_address
from broker.config.overload_settings import OverloadSettings
from broker.config.pop_settings import PopSettings
from broker.config.security_settings import SecuritySettings
from broker.config.table_settings import TableSettings
from sprocket.common.errors import ConfigError
from sprocket.common.setting_fields import bool_setting as _bool
from sprocket.common.setting_fields import int_setting as _int
from sprocket.common.setting_fields import text_setting as _str
from sprocket.remoting.message.topic_names import TRACE_TOPIC

_ADDRESS = re.compile(r"(?:[^\s:;\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


class BrokerRole(StrEnum):
    """What a broker is to the others of its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True)
class BrokerConfig(PopSettings, ActingSettings, SecuritySettings, TableSettings, OverloadSettings, ColdSettings):
    """The broker's part of its configuration."""

    broker_name: str = field(
        default_factory=host_name,
        metadata={
            "key": "brokerName",
            "doc": "Name of the master and its slaves; queues belong to it.",
            "default_text": "the host name",
        },
    )
    broker_cluster_name: str = _str("brokerClusterName", "DefaultCluster", "Cluster that the broker belongs to.")
    broker_id: int = _int("brokerId", 0, "0 is the master, others are slaves.", minimum=0)
    broker_role: BrokerRole = field(
        default=BrokerRole.ASYNC_MASTER,
        metadata={
            "key": "brokerRole",
            "doc": "ASYNC_MASTER answers at once, SYNC_MASTER when a slave has the message; SLAVE follows.",
            "allowed": tuple(BrokerRole),
        },
    )
    namesrv_addr: str = field(
        default_factory=lambda: os.environ.get("NAMESRV_ADDR", ""),
        metadata={
            "key": "namesrvAddr",
            "doc": "Name servers to register with: `host:port`, several separated by `;`.",
            "default_text": "$NAMESRV_ADDR",
        },
    )
    broker_ip1: str = field(
        default_factory=local_address,
        metadata={
            "key": "brokerIP1",
            "doc": "Address that clients are told to connect to.",
            "default_text": "the local address",
        },
    )
    broker_ip2: str = field(
        default_factory=local_address,
        metadata={
            "key": "brokerIP2",
            "doc": "Address that slaves are told to replicate from.",
            "default_text": "the local address",
        },
    )
    bind_address: str = _str("bindAddress", "0.0.0.0", "Address to listen on.")
    listen_port: int = _int("listenPort", 10911, "Port for clients; 0 takes a free one.", minimum=0, maximum=65535)
    ha_listen_port: int = _int(
        "haListenPort", 0, "Port that is registered for slaves; 0 means listenPort + 1.", minimum=0, maximum=65535
    )
    server_channel_max_idle_time_seconds: int = _int(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection that is silent this long is closed.",
        minimum=1,
        unit="s",
        mutable=True,
    )
    broker_permission: int = field(
        default=6,
        metadata={
            "key": "brokerPermission",
            "doc": "What clients may do: 4 read, 2 write, 6 both.",
            "allowed": (2, 4, 6),
            "mutable": True,
        },
    )
    default_topic_queue_nums: int = _int(
        "defaultTopicQueueNums",
        8,
        "Queues of a topic that is created on first use, at most.",
        minimum=1,
        maximum=1024,
        mutable=True,
    )
    auto_create_topic_enable: bool = _bool(
        "autoCreateTopicEnable", True, "A send to an unknown topic creates it.", mutable=True
    )
    cluster_topic_enable: bool = _bool(
        "clusterTopicEnable", True, "Offer the topic named after the cluster, which new topics may be modelled on."
    )
    broker_topic_enable: bool = _bool(
        "brokerTopicEnable", True, "Offer the topic named after the broker, with one queue."
    )
    auto_create_subscription_group: bool = _bool(
        "autoCreateSubscriptionGroup", True, "A pull of an unknown group creates it.", mutable=True
    )
    trace_topic_enable: bool = _bool("traceTopicEnable", False, "Offer the topic for message traces.")
    msg_trace_topic_name: str = _str("msgTraceTopicName", TRACE_TOPIC, "Name of the topic for traces.")
    trace_on: bool = _bool("traceOn", True, "Tell producers that this broker wants traces.", mutable=True)
    region_id: str = _str("regionId", "DefaultRegion", "Region that a send's answer names, for traces.")
    long_polling_enable: bool = _bool(
        "longPollingEnable", True, "Hold a pull that finds nothing until something comes.", mutable=True
    )
    short_polling_time_mills: int = _int(
        "shortPollingTimeMills",
        1_000,
        "How long a pull is held when longPollingEnable is false.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    notify_consumer_ids_changed_enable: bool = _bool(
        "notifyConsumerIdsChangedEnable", True, "Tell the consumers of a group when one joins or leaves.", mutable=True
    )
    channel_expired_timeout: int = _int(
        "channelExpiredTimeout",
        120_000,
        "A client that sends no heartbeat this long is dropped.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    pop_polling_size: int = _int(
        "popPollingSize",
        1_024,
        "Pops that are held for one queue of a topic and group, or for all of its queues, at most.",
        minimum=1,
        mutable=True,
    )
    pop_polling_map_size: int = _int(
        "popPollingMapSize",
        100_000,
        "Queues that pops are held for, of all topics and groups, at most.",
        minimum=1,
        mutable=True,
    )
    max_pop_polling_size: int = _int(
        "maxPopPollingSize",
        100_000,
        "Pops that are held, at most; further ones are told POLLING_FULL.",
        minimum=1,
        mutable=True,
    )
    pop_long_polling_force_notify_interval: int = _int(
        "popLongPollingForceNotifyInterval",
        800,
        "Every so many messages of a queue wake a held pop even if its filter does not want them; 0 means never.",
        minimum=0,
        mutable=True,
    )
    slave_read_enable: bool = _bool(
        "slaveReadEnable",
        False,
        "On a master: send consumers that are far behind to the slave that their group names; on a slave: serve them.",
        mutable=True,
    )
    lite_pull_message_enable: bool = _bool("litePullMessageEnable", True, "Serve LITE_PULL_MESSAGE.", mutable=True)
    start_accept_send_request_time_stamp: int = _int(
        "startAcceptSendRequestTimeStamp", 0, "Sends before this time are refused.", minimum=0, unit="ms", mutable=True
    )
    broker_fast_failure_enable: bool = _bool(
        "brokerFastFailureEnable",
        True,
        "Refuse sends as SYSTEM_BUSY while the disk is slow; if false they wait.",
        mutable=True,
    )
    enable_property_filter: bool = _bool(
        "enablePropertyFilter", False, "Let consumers filter by SQL92 over properties.", mutable=True
    )
    filter_support_retry: bool = _bool(
        "filterSupportRetry",
        False,
        "A SQL92 pull of a retry topic filters by what the group wants of the original topic.",
        mutable=True,
    )
    filter_data_clean_time_span: int = _int(
        "filterDataCleanTimeSpan",
        86_400_000,
        "The filter of a group without members is forgotten after this.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    enable_notify_after_pop_order_lock_release: bool = _bool(
        "enableNotifyAfterPopOrderLockRelease",
        True,
        "Wake held pops in order when what others hold comes free.",
        mutable=True,
    )
    use_server_side_reset_offset: bool = _bool(
        "useServerSideResetOffset",
        True,
        "A reset sets a group's offset here; if false the consumers that are online are told, and commit it.",
        mutable=True,
    )
    enable_clean_expired_offset: bool = _bool(
        "enableCleanExpiredOffset",
        False,
        "Every hour forget where groups without members are in topics of which all that they had yet to read "
        "has expired.",
        mutable=True,
    )
    enable_mixed_message_type: bool = _bool(
        "enableMixedMessageType",
        False,
        "Whether topics may be given the attribute message.type=MIXED.  What it says is the proxy's to enforce.",
        mutable=True,
    )
    enable_lmq_stats: bool = _bool(
        "enableLmqStats",
        False,
        "With enableLmq: whether each light topic and group has figures of its own.",
        mutable=True,
    )
    enable_create_sys_group: bool = _bool(
        "enableCreateSysGroup",
        True,
        "Groups that begin with CID_RMQ_SYS_ are created on first use, also without autoCreateSubscriptionGroup.",
        mutable=True,
    )
    enable_broadcast_offset_store: bool = _bool(
        "enableBroadcastOffsetStore",
        True,
        "Whether the broker remembers where the members of broadcasting groups read, for proxies.",
        mutable=True,
    )
    broadcast_offset_expire_second: int = _int(
        "broadcastOffsetExpireSecond",
        120,
        "For so long the place of a member of a broadcasting group is kept that has gone.",
        minimum=1,
        unit="s",
        mutable=True,
    )
    broadcast_offset_expire_max_second: int = _int(
        "broadcastOffsetExpireMaxSecond",
        300,
        "For so long the place of a member of a broadcasting group is kept that does not pull.",
        minimum=1,
        unit="s",
        mutable=True,
    )
    reject_transaction_message: bool = _bool(
        "rejectTransactionMessage", False, "Refuse transactional messages.", mutable=True
    )
    transaction_time_out: int = _int(
        "transactionTimeOut",
        6_000,
        "A producer is not asked about a transaction that is younger.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    transaction_check_max: int = _int(
        "transactionCheckMax",
        15,
        "After so many questions a transaction is given up, into TRANS_CHECK_MAX_TIME_TOPIC.",
        minimum=1,
        mutable=True,
    )
    transaction_check_interval: int = _int(
        "transactionCheckInterval",
        30_000,
        "How often producers are asked about open transactions.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    transaction_op_msg_max_size: int = _int(
        "transactionOpMsgMaxSize",
        4_096,
        "Size of a message that says which transactions have ended; more go into the next one.",
        minimum=1,
        unit="bytes",
        mutable=True,
    )
    recall_message_enable: bool = _bool(
        "recallMessageEnable", False, "Let producers take back messages that wait in the timer wheel.", mutable=True
    )
    allow_recall_when_broker_not_writeable: bool = _bool(
        "allowRecallWhenBrokerNotWriteable", True, "Also while brokerPermission forbids to write.", mutable=True
    )
    store_reply_message_enable: bool = _bool(
        "storeReplyMessageEnable", True, "Store the replies of request-reply as well as push them.", mutable=True
    )
    reply_thread_pool_queue_capacity: int = _int(
        "replyThreadPoolQueueCapacity",
        10_000,
        "Replies that wait for their requesters, at most; further ones are refused as SYSTEM_BUSY.",
        minimum=1,
        mutable=True,
    )
    server_load_balancer_enable: bool = _bool(
        "serverLoadBalancerEnable",
        True,
        "Divide queues among the consumers that ask for their assignment; if false each gets all.",
        mutable=True,
    )
    default_message_request_mode: str = field(
        default="PULL",
        metadata={
            "key": "defaultMessageRequestMode",
            "doc": "How groups take topics that nobody set a mode for, if they leave the division to the broker.",
            "allowed": ("PULL", "POP"),
            "mutable": True,
        },
    )
    default_pop_share_queue_num: int = _int(
        "defaultPopShareQueueNum",
        -1,
        "With POP by default: from the queues of so many others a consumer pops too; -1 means of all.",
        minimum=-1,
        mutable=True,
    )
    load_balance_poll_name_server_interval: int = _int(
        "loadBalancePollNameServerInterval",
        30_000,
        "How often name servers are asked again about topics that are divided here.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    flush_consumer_offset_interval: int = _int(
        "flushConsumerOffsetInterval",
        5_000,
        "How often consumerOffset.json is written.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    flush_delay_offset_interval: int = _int(
        "flushDelayOffsetInterval", 10_000, "How often delayOffset.json is written.", minimum=1, unit="ms", mutable=True
    )
    register_name_server_period: int = _int(
        "registerNameServerPeriod",
        30_000,
        "How often the broker registers anew; taken as 10 to 60 seconds.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    register_broker_timeout_mills: int = _int(
        "registerBrokerTimeoutMills", 24_000, "How long a registration may take.", minimum=1, unit="ms", mutable=True
    )
    force_register: bool = _bool(
        "forceRegister", True, "Register each time; if false, only when the data version differs.", mutable=True
    )
    compressed_register: bool = _bool("compressedRegister", False, "Compress the body of a registration.", mutable=True)
    enable_single_topic_register: bool = _bool(
        "enableSingleTopicRegister",
        False,
        "Register changed topics with REGISTER_TOPIC_IN_NAMESRV; if false, as a part of the list of topics.",
        mutable=True,
    )
    enable_split_registration: bool = _bool(
        "enableSplitRegistration",
        False,
        "Register topics in parts. No name server then deletes a route because the broker no longer names it.",
        mutable=True,
    )
    split_registration_size: int = _int(
        "splitRegistrationSize", 800, "Max topics of a part with enableSplitRegistration.", minimum=1, mutable=True
    )
    validate_system_topic_when_update_topic: bool = _bool(
        "validateSystemTopicWhenUpdateTopic", True, "Refuse to change system topics.", mutable=True
    )
    clear_retry_topic_when_delete_topic: bool = _bool(
        "clearRetryTopicWhenDeleteTopic", True, "Deleting a topic deletes its pop retry topics.", mutable=True
    )

    @property
    def name_servers(self) -> list[str]:
        """The addresses in `namesrv_addr`, in their order."""
        return [address for address in (part.strip() for part in self.namesrv_addr.split(";")) if address]

    def with_ports(self, listen_port: int) -> "BrokerConfig":
        """The same with the ports that are really listened on; slaves are told the next one if none was given."""
        return replace(self, listen_port=listen_port, ha_listen_port=self.ha_listen_port or listen_port + 1)

    def check(self) -> None:
        """Raise ConfigError for what cannot be started with."""
        for address in self.name_servers:
            if not _ADDRESS.fullmatch(address):
                raise ConfigError(
                    f"namesrvAddr = {self.namesrv_addr!r}: allowed is host:port, several separated by ; "
                    "as in 127.0.0.1:9876;192.168.0.1:9876"
                )
        if self.listen_port and self.listen_port == self.ha_listen_port:
            raise ConfigError(f"haListenPort = {self.ha_listen_port}: listenPort is the same, choose another one")
        if self.broker_role is not BrokerRole.SLAVE and self.broker_id != 0:
            raise ConfigError(f"brokerId = {self.broker_id}: a broker of role {self.broker_role} has brokerId 0")
        if self.broker_role is BrokerRole.SLAVE and self.broker_id == 0:
            raise ConfigError("brokerId = 0: a broker of role SLAVE has a brokerId above 0, its own in its group")
        if not self.broker_name or not self.broker_cluster_name:
            raise ConfigError("brokerName and brokerClusterName: allowed is text that is not empty")
        self.check_auth()
