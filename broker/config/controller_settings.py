"""Settings of a broker whose role controllers decide.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, and of storePathBrokerIdentity `MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting

_LOWEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True)
class ControllerSettings:
    """Settings in `BrokerConfig` of brokers under controllers."""

    enable_controller_mode: bool = bool_setting(
        False,
        "Controllers decide which broker of the group is its master, and give each broker its id; brokerId is "
        "ignored, and brokerRole only says how this broker leads.",
    )
    controller_addr: str = text_setting("", "Controllers: `host:port`, several separated by `;`; hosts may be names.")
    fetch_controller_addr_by_dns_lookup: bool = bool_setting(
        False, "Every address of a name in controllerAddr is a controller; the name is looked up every two minutes."
    )
    sync_broker_metadata_period: int = int_setting(
        5_000,
        "Interval at which the controllers are asked for the master; they also tell the broker of a new one.",
        1,
        "ms",
        mutable=True,
    )
    check_sync_state_set_period: int = int_setting(
        5_000, "Interval at which the master looks for slaves that are not in sync any more.", 1, "ms", mutable=True
    )
    sync_controller_metadata_period: int = int_setting(
        10_000,
        "Interval at which controllers are asked for their leader; also done when one does not lead any more.",
        1,
        "ms",
        mutable=True,
    )
    controller_heart_beat_timeout_mills: int = int_setting(
        10_000,
        "Controllers take the broker for dead after this time without a heartbeat; a master with leases after two.",
        1,
        "ms",
        mutable=True,
    )
    broker_election_priority: int = int_setting(
        _LOWEST_PRIORITY,
        "Of replicas with equal logs the one with the lowest value becomes the master.",
        0,
        maximum=_LOWEST_PRIORITY,
        mutable=True,
    )
    store_path_broker_identity: str = text_setting(
        "", "File with the id that controllers assigned; brokerIdentity in storePathRootDir if empty."
    )
