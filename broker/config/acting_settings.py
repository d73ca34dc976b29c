"""Settings of slaves that act for a lost master.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, and of totalReplicas `MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class ActingSettings:
    """Settings in `BrokerConfig` of the members of a broker group and of the acting master."""

    enable_slave_acting_master: bool = bool_setting(
        False,
        "Let the slave with the smallest id act for a lost master; must be equal in all members of the broker group.",
    )
    enable_remote_escape: bool = bool_setting(
        False,
        "An acting slave sends due messages (delayed, timed, popped, prepared) to another master of the cluster; "
        "if false, they wait for their own master.",
        mutable=True,
    )
    broker_heartbeat_interval: int = int_setting(
        1_000, "Interval of heartbeats to name servers.", 1, "ms", mutable=True
    )
    send_heartbeat_timeout_millis: int = int_setting(
        1_000, "Timeout for the connection of a heartbeat to a name server.", 1, "ms", mutable=True
    )
    broker_not_active_timeout_millis: int = int_setting(
        10_000, "Name servers remove the broker after this time without a heartbeat.", 1, "ms", mutable=True
    )
    sync_broker_member_group_period: int = int_setting(
        1_000, "Interval at which name servers are asked for the members of the broker group.", 1, "ms", mutable=True
    )
    skip_pre_online: bool = bool_setting(
        False,
        "Serve at once after the start, without first copying the state of the acting member of the broker group.",
    )
    lock_in_strict_mode: bool = bool_setting(
        False, "A queue is locked once a majority of the broker group has locked it, see totalReplicas.", mutable=True
    )
    total_replicas: int = int_setting(
        1, "Number of members of the broker group, see lockInStrictMode.", 1, mutable=True
    )
    compatible_with_old_name_srv: bool = bool_setting(
        True, "Send heartbeats and membership queries as requests that name servers before 5.0 also know.", mutable=True
    )
