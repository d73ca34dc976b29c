"""What replication can be told: the ha keys of RocketMQ's `MessageStoreConfig` that are honoured.

`store.config.store_config.StoreConfig` inherits them, as in RocketMQ they are keys of the store.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from sprocket.common.setting_fields import bool_setting, int_setting, text_setting
from store.config.session_config import SessionConfig

_MAX_INT: Final = (1 << 31) - 1

_int = partial(int_setting, maximum=_MAX_INT)


@dataclass(frozen=True, kw_only=True)
class HaConfig(SessionConfig):
    """Replication's part of a store's configuration."""

    ha_send_heartbeat_interval: int = _int(
        "haSendHeartbeatInterval",
        5000,
        "Time without anything to send after which a heartbeat goes.",
        1,
        "ms",
        mutable=True,
    )
    ha_housekeeping_interval: int = _int(
        "haHousekeepingInterval", 20_000, "A slave that is silent for this long is disconnected.", 1, "ms", mutable=True
    )
    ha_master_address: str = text_setting(
        "haMasterAddress",
        "",
        "HA port of the master that a slave follows, host:port; empty for the one that name servers name.",
    )
    ha_transfer_batch_size: int = _int(
        "haTransferBatchSize",
        32 * 1024,
        "Most bytes of the CommitLog in one message to a slave.",
        1024,
        "bytes",
        mutable=True,
    )
    ha_max_gap_not_in_sync: int = _int(
        "haMaxGapNotInSync",
        256 * 1024 * 1024,
        "A slave that is further behind is not in sync.",
        1,
        "bytes",
        mutable=True,
    )
    ha_flow_control_enable: bool = bool_setting(
        "haFlowControlEnable", False, "Hold each slave to maxHaTransferByteInSecond.", mutable=True
    )
    max_ha_transfer_byte_in_second: int = _int(
        "maxHaTransferByteInSecond",
        100 * 1024 * 1024,
        "Most bytes for one slave in a second.",
        1024,
        "bytes",
        mutable=True,
    )
    offset_check_in_slave: bool = bool_setting(
        "offsetCheckInSlave",
        False,
        "A slave corrects the offsets of consumers by its own queues; if false it leaves that to the master.",
        mutable=True,
    )
    slave_timeout: int = _int(
        "slaveTimeout",
        3000,
        "SYNC_MASTER: a send that waits longer for slaves is answered FLUSH_SLAVE_TIMEOUT.",
        1,
        "ms",
        mutable=True,
    )
    in_sync_replicas: int = _int(
        "inSyncReplicas",
        1,
        "SYNC_MASTER: so many replicas have a message before its send is answered SEND_OK, the master among them; "
        "1 counts as 2.",
        1,
        mutable=True,
    )
    min_in_sync_replicas: int = _int(
        "minInSyncReplicas",
        1,
        "SYNC_MASTER: with fewer replicas in sync, the master among them, nothing is taken.",
        1,
        mutable=True,
    )
    enable_auto_in_sync_replicas: bool = bool_setting(
        "enableAutoInSyncReplicas",
        False,
        "SYNC_MASTER: with fewer replicas in sync than inSyncReplicas those are enough, down to minInSyncReplicas.",
        mutable=True,
    )
    all_ack_in_sync_state_set: bool = bool_setting(
        "allAckInSyncStateSet", False, "SYNC_MASTER: all slaves in sync have a message before SEND_OK.", mutable=True
    )
    ha_max_time_slave_not_catchup: int = _int(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "A slave that has not had all for this long is not in sync.",
        1,
        "ms",
        mutable=True,
    )
    ha_ack_flushed_offset: bool = bool_setting(
        "haAckFlushedOffset",
        False,
        "SYNC_MASTER: what a slave has on its disk counts, not what it has received; of a slave that does not say it, "
        "as RocketMQ's, what it has received.",
    )
