"""What a run is: how many brokers, which roles and flush types, how much is sent, how long it goes."""

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.config.broker_config import BrokerConfig, BrokerRole
from store.config.store_config import FlushDiskType, StoreConfig
from tests.sim.sim_store import STORE_ROOT

LISTEN_PORT: Final = 10911
HA_PORT: Final = 10912
TAIL_WAIT_S: Final = 4.0
TOPIC: Final = "Orders"
QUEUES: Final = 2


@dataclass(frozen=True)
class Profile:
    """One run's cluster.  Times in seconds."""

    groups: int
    slaves: int
    is_sync_master: bool
    is_sync_flush: bool
    # With SYNC_MASTER: the replicas that SEND_OK promises, and the number in sync below which sends are refused.
    required: int
    least: int
    # Both ends speak RocketMQ's two messages and nothing else.
    is_plain: bool
    segment_bytes: int
    # Bodies of one size make records of different histories end at the same places.
    fixed_body: bool
    faults: int
    seconds: float
    producers: int
    # Tables travel in sessions alone.
    has_schedule: bool = False

    @property
    def name(self) -> str:
        replication = "SYNC_MASTER" if self.is_sync_master else "ASYNC_MASTER"
        flush = "SYNC_FLUSH" if self.is_sync_flush else "ASYNC_FLUSH"
        replicas = f"inSyncReplicas={self.required} minInSyncReplicas={self.least}"
        return f"{self.groups}m-{self.slaves}s {replication} {flush} {replicas}{' plain' if self.is_plain else ''}"

    @property
    def master_role(self) -> BrokerRole:
        return BrokerRole.SYNC_MASTER if self.is_sync_master else BrokerRole.ASYNC_MASTER

    def store_config(self, **fields: Any) -> StoreConfig:
        values: dict[str, Any] = {
            "mapped_file_size_consume_queue": 40 * 20,
            "message_index_enable": False,
            "ha_session_enable": not self.is_plain,
            "ha_tail_recovery_wait": round(TAIL_WAIT_S * 1000),
            "flush_interval_commit_log": 400,
            "flush_commit_log_thorough_interval": 1500,
            "flush_commit_log_least_pages": 1,
            "flush_interval_consume_queue": 2000,
            "flush_consume_queue_thorough_interval": 7000,
            "delete_commit_log_files_interval": 100,
            "clean_resource_interval": 5000,
            "ha_send_heartbeat_interval": 1500,
            "ha_housekeeping_interval": 6000,
            "ha_transfer_batch_size": 2048,
            "sync_flush_timeout": 3000,
            "slave_timeout": 2000,
            "ha_max_time_slave_not_catchup": 4000,
            "in_sync_replicas": self.required,
            "min_in_sync_replicas": self.least,
            **fields,
        }
        known = StoreConfig.__dataclass_fields__
        return StoreConfig(
            store_path_root_dir=STORE_ROOT,
            mapped_file_size_commit_log=self.segment_bytes,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if self.is_sync_flush else FlushDiskType.ASYNC_FLUSH,
            **{name: value for name, value in values.items() if name in known},
        )

    def broker_config(self, group: int, broker_id: int, ip: str) -> BrokerConfig:
        return BrokerConfig(
            broker_name=f"broker-{'abc'[group]}",
            broker_cluster_name="Simulated",
            broker_id=broker_id,
            broker_role=self.master_role if broker_id == 0 else BrokerRole.SLAVE,
            broker_ip1=ip,
            broker_ip2=ip,
            bind_address=ip,
            listen_port=LISTEN_PORT,
            ha_listen_port=HA_PORT,
            namesrv_addr="",
        )


def profile_of(seed: int) -> Profile:
    """The cluster of a seed."""
    rng = random.Random(seed * 7919 + 1)
    slaves = 2 if rng.random() < 0.4 else 1
    profile = Profile(
        groups=2 if rng.random() < 0.25 else 1,
        slaves=slaves,
        is_sync_master=rng.random() < 0.65,
        is_sync_flush=rng.random() < 0.5,
        required=3 if slaves == 2 and rng.random() < 0.4 else 2,
        least=2 if rng.random() < 0.5 else 1,
        is_plain=rng.random() < 0.3,
        segment_bytes=rng.choice((4096, 4096, 8192, 16384)),
        fixed_body=rng.random() < 0.3,
        faults=rng.randint(2, 6),
        seconds=rng.uniform(8, 16),
        producers=rng.randint(1, 3),
        has_schedule=rng.random() < 0.6,
    )
    return replace(profile, has_schedule=profile.has_schedule and not profile.is_plain)
