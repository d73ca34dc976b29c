"""Broker groups in the test's process: a name server, and members that come and go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.route_queries import topic_route
from namesrv.server import NameServer
from sprocket.remoting.bodies.route import TopicRouteData
from tests.broker.rig import TestClient, bodies_in_order, broker_config, store_config

# What takes seconds by default.
_BROKER = {
    "enable_slave_acting_master": True,
    "enable_remote_escape": True,
    "broker_heartbeat_interval": 50,
    "broker_not_active_timeout_millis": 2_500,
    "sync_broker_member_group_period": 50,
    "revive_interval": 50,
}
_STORE = {
    "timer_precision_ms": 100,
    "timer_flush_interval_ms": 20,
    "flush_commit_log_least_pages": 0,
    "message_delay_level": "1s 2s 3s",
    "file_reserved_time": 1_000_000,  # the test client's messages are old
}


@dataclass
class Cluster:
    """Members by name and id; the folder of one stays when it stops."""

    root: Path
    name_server: NameServer
    brokers: dict[tuple[str, int], Broker] = field(default_factory=dict)
    clients: list[TestClient] = field(default_factory=list)

    async def start(self, name: str, broker_id: int = 0, store: dict[str, Any] | None = None, **changes: Any) -> Broker:
        """Start a member; slaves ask for their master's tables every turn."""
        fields: dict[str, Any] = _BROKER | {
            "broker_name": name,
            "broker_id": broker_id,
            "broker_ip2": "127.0.0.1",
            "broker_role": BrokerRole.SLAVE if broker_id else BrokerRole.ASYNC_MASTER,
            # Masters ask nobody in a test's time.
            "transaction_check_interval": 200 if broker_id else 60_000,
            "namesrv_addr": f"127.0.0.1:{self.name_server.port}",
        }
        folder = self.root / f"{name}-{broker_id}"
        broker = Broker(broker_config(**(fields | changes)), store_config(folder, **(_STORE | (store or {}))))
        self.brokers[name, broker_id] = broker
        await broker.start()
        if broker_id:
            broker.synchronize.all_s = broker.synchronize.checkpoint_s = 0.0
        return broker

    async def stop(self, name: str, broker_id: int = 0) -> None:
        await self.brokers.pop((name, broker_id)).stop()

    def client(self, broker: Broker) -> TestClient:
        self.clients.append(TestClient(f"127.0.0.1:{broker.port}"))
        return self.clients[-1]

    def members(self, name: str) -> dict[int, str]:
        group = self.name_server.table.brokers.get(name)
        return {} if group is None else group.broker_addrs

    def route(self, topic: str) -> TopicRouteData:
        route = topic_route(self.name_server.table, topic, support_acting_master=True)
        assert route is not None
        return route

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for broker in list(self.brokers.values()):
            await broker.stop()
        await self.name_server.stop()


@asynccontextmanager
async def cluster(root: Path) -> AsyncIterator[Cluster]:
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=root / "kvConfig.json",
        scan_not_active_broker_interval=100,
        support_acting_master=True,
        notify_min_broker_id_changed=True,
    )
    name_server = NameServer(config)
    await name_server.start()
    it = Cluster(root, name_server)
    try:
        yield it
    finally:
        await it.close()


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return sorted(bodies_in_order(broker, topic))
