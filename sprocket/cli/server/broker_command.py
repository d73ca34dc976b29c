"""Runs a broker: used by `mqbroker` and by `sprocket standalone`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from sprocket.cli.server.server_commands import start_line

if TYPE_CHECKING:
    from broker.server import Broker
    from sprocket.common.config import Configuration


def run_broker(configuration: "Configuration", as_json: bool, log_level: str) -> None:
    """Run a broker until a signal or a failure, then exit the process."""
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from sprocket.cli.server.server_process import Process, Server, log_to_stderr
    from sprocket.cli.server.table_process import TableProcess
    from sprocket.common.clock import SystemClock
    from sprocket.common.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from store.config.store_config import StoreConfig

    log_to_stderr(log_level)
    process = Process()
    config, tls = configuration.of(BrokerConfig), configuration.of(TlsSettings)
    store = configuration.of(StoreConfig)
    broker = Broker(config, store, tls=tls, on_fatal=process.fail, file=ConfigurationFile.of(configuration))
    servers: list[Callable[[], Server]] = [lambda: broker]
    if config.keeps_tables:
        servers.append(lambda: TableProcess(config, store, SystemClock()))
    sys.exit(process.run(servers, lambda: broker_line(broker, as_json)))


def broker_line(broker: "Broker", as_json: bool) -> str:
    """Return the start line of a broker: address, cluster, role, store path and durability."""
    from sprocket.cli.server.server_config import durability

    config, store = broker.config.broker, broker.config.store
    address = f"{config.broker_ip1}:{config.listen_port}"
    words = durability(config, store)
    facts: dict[str, object] = {
        "server": "broker",
        "brokerName": config.broker_name,
        "brokerId": config.broker_id,
        "address": address,
        "port": config.listen_port,
        "haListenPort": config.ha_listen_port,
        "cluster": config.broker_cluster_name,
        "role": config.broker_role.name,
        "store": store.store_path_root_dir,
        "namesrvAddr": config.namesrv_addr,
        "flushDiskType": store.flush_disk_type.name,
        "durability": words,
    }
    name_server = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
    sentence = (
        f"The broker[{config.broker_name}, {address}] boot success. serializeType=JSON{name_server}; "
        f"cluster={config.broker_cluster_name} role={config.broker_role.name} id={config.broker_id} "
        f"store={store.store_path_root_dir}; {store.flush_disk_type.name}: {words}"
    )
    return start_line(facts, sentence, as_json)
