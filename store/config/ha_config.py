"""Settings of replication: the supported ha keys of RocketMQ's `MessageStoreConfig`.

`store.config.store_config.StoreConfig` inherits them, because in RocketMQ they are keys of the store.
Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting
from store.config.session_config import SessionConfig

_MAX_INT: Final = (1 << 31) - 1

_int = partial(int_setting, maximum=_MAX_INT)


@dataclass(frozen=True, kw_only=True)
class HaConfig(SessionConfig):
    """Settings of a store for replication."""

    ha_send_heartbeat_interval: int = _int(
        5000, "A master that has sent nothing for this long sends a heartbeat.", 1, "ms", mutable=True
    )
    ha_housekeeping_interval: int = _int(
        20_000, "A slave that is silent for this long is disconnected.", 1, "ms", mutable=True
    )
    ha_master_address: str = text_setting(
        "", "host:port, HA port of the master that a slave follows; empty: the master that the name servers name."
    )
    ha_transfer_batch_size: int = _int(
        32 * 1024, "Maximum bytes of the CommitLog in one message to a slave.", 1024, "bytes", mutable=True
    )
    ha_max_gap_not_in_sync: int = _int(
        256 * 1024 * 1024, "A slave with a larger lag is not in sync.", 1, "bytes", mutable=True
    )
    ha_flow_control_enable: bool = bool_setting(False, "Limit each slave to maxHaTransferByteInSecond.", mutable=True)
    max_ha_transfer_byte_in_second: int = _int(
        100 * 1024 * 1024, "Maximum bytes to one slave per second.", 1024, "bytes", mutable=True
    )
    offset_check_in_slave: bool = bool_setting(
        False,
        "A slave corrects consumers' offsets by its own queues; if false, only the master corrects them.",
        mutable=True,
    )
    slave_timeout: int = _int(
        3000,
        "SYNC_MASTER: a send that waits longer for slaves gets the response FLUSH_SLAVE_TIMEOUT.",
        1,
        "ms",
        mutable=True,
    )
    in_sync_replicas: int = _int(
        1,
        "SYNC_MASTER: number of replicas, including the master, that must have a message before SEND_OK; 1 counts "
        "as 2.",
        1,
        mutable=True,
    )
    min_in_sync_replicas: int = _int(
        1, "SYNC_MASTER: with fewer replicas in sync, including the master, sends are refused.", 1, mutable=True
    )
    enable_auto_in_sync_replicas: bool = bool_setting(
        False,
        "SYNC_MASTER: with fewer replicas in sync than inSyncReplicas, these suffice, down to minInSyncReplicas.",
        mutable=True,
    )
    all_ack_in_sync_state_set: bool = bool_setting(
        False, "SYNC_MASTER: all slaves in sync must have a message before SEND_OK.", mutable=True
    )
    ha_max_time_slave_not_catchup: int = _int(
        15_000, "A slave that has not caught up for this long is not in sync.", 1, "ms", mutable=True
    )
    async_learner: bool = bool_setting(
        False,
        "Controller mode: this broker, as a slave, never joins the sync-state set and never counts for an "
        "acknowledgement.",
    )
    ha_ack_flushed_offset: bool = bool_setting(
        False,
        "SYNC_MASTER: a slave has a message when it is on the slave's disk, not when the slave received it. A "
        "slave of RocketMQ does not report this; for it, receipt counts.",
    )
