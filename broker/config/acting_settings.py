"""What a broker can be told about slaves that act for a lost master.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, and of totalReplicas `MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class ActingSettings:
    """The part of `BrokerConfig` that is about the members of a broker group, and about the one that acts."""

    enable_slave_acting_master: bool = bool_setting(
        "enableSlaveActingMaster",
        False,
        "The slave with the smallest id does the work of a master that is gone; all of a group say the same.",
    )
    enable_remote_escape: bool = bool_setting(
        "enableRemoteEscape",
        False,
        "A slave that acts sends what is due (delayed, timed, popped, prepared) to another master of the cluster; "
        "if false it waits for its own.",
        mutable=True,
    )
    broker_heartbeat_interval: int = int_setting(
        "brokerHeartbeatInterval",
        1_000,
        "How often name servers get a sign of life.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    send_heartbeat_timeout_millis: int = int_setting(
        "sendHeartbeatTimeoutMillis",
        1_000,
        "How long it may take to connect to a name server for that.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    broker_not_active_timeout_millis: int = int_setting(
        "brokerNotActiveTimeoutMillis",
        10_000,
        "After such a silence name servers take the broker for gone.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    sync_broker_member_group_period: int = int_setting(
        "syncBrokerMemberGroupPeriod",
        1_000,
        "How often name servers are asked who is in the broker group.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    skip_pre_online: bool = bool_setting(
        "skipPreOnline",
        False,
        "Serve at once after the start, without taking over what another member of the group has done meanwhile.",
    )
    lock_in_strict_mode: bool = bool_setting(
        "lockInStrictMode",
        False,
        "A queue counts as locked once most members of the group have locked it, see totalReplicas.",
        mutable=True,
    )
    total_replicas: int = int_setting(
        "totalReplicas", 1, "How many members the broker group has, see lockInStrictMode.", minimum=1, mutable=True
    )
    compatible_with_old_name_srv: bool = bool_setting(
        "compatibleWithOldNameSrv",
        True,
        "Talk to name servers about heartbeats and members with requests that those before 5.0 know, too.",
        mutable=True,
    )
