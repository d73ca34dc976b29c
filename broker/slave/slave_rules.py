"""What the configuration says about a slave's connection to its master."""

from typing import Final

from ha.slave_link import SlaveRules
from store.config.store_config import StoreConfig

_MIN_ADDRESS: Final = 6


def slave_rules(config: StoreConfig) -> SlaveRules:
    """Return the rules of a slave's connection to its master."""
    return SlaveRules(
        heartbeat_s=config.ha_send_heartbeat_interval / 1000,
        housekeeping_s=config.ha_housekeeping_interval / 1000,
        segment_bytes=config.mapped_file_size_commit_log,
    )


def fixed_ha_address(config: StoreConfig) -> str:
    """Return the configured address of the master's port for slaves; empty if name servers tell it.

    Source: RocketMQ 5.3.3, `BrokerController.HA_ADDRESS_MIN_LENGTH`.
    """
    address = config.ha_master_address
    return address if len(address) >= _MIN_ADDRESS else ""
