"""Runs a broker: used by `mqbroker` and by `sprocket standalone`."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sprocket.common.extras import install
from sprocket_cli.client_session import WrongUsage, wrong_usage
from sprocket_cli.server.server_commands import start_line

if TYPE_CHECKING:
    from broker.server import Broker
    from controller.server import Controller
    from sprocket.common.config.configuration import Configuration
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.dledger_mode import DLedgerMode
    from sprocket_cli.server.server_process import Process


def run_broker(configuration: "Configuration", as_json: bool, log_level: str) -> None:
    """Run a broker until a signal or a failure, then exit the process."""
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from sprocket.common.clock import SystemClock
    from sprocket.common.config.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.beside_processes import processes_beside
    from sprocket_cli.server.dledger_mode import dledger_mode
    from sprocket_cli.server.health_server import HealthServer, broker_conditions
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process, Server
    from store.config.store_config import StoreConfig

    config, tls = configuration.of(BrokerConfig), configuration.of(TlsSettings)
    log = ServerLog(config, log_level)
    process = Process()
    store = configuration.of(StoreConfig)
    file = ConfigurationFile.of(configuration)
    # First, so that it answers while the store recovers.
    health = HealthServer(config, config.bind_address)
    servers: list[Callable[[], Server]] = [lambda: health]
    with wrong_usage():
        mode = dledger_mode(config, store)
    if mode is not None:
        config, store = mode.broker, mode.store
        controller = controller_of_group(mode, tls, process)
        controller.settings.on_update.append(log.follow(lambda: controller.settings.current))
        servers.append(lambda: controller)
    broker = Broker(config, store, tls=tls, on_fatal=process.fail, file=file)
    broker.config.on_update.append(log.follow(lambda: broker.config.broker))
    health.watch(broker_conditions(broker))
    servers.append(lambda: broker)
    servers += processes_beside(config, store, SystemClock())
    sys.exit(process.run(servers, lambda: broker_line(broker, as_json)))


def controller_of_group(mode: "DLedgerMode", tls: "TlsSettings", process: "Process") -> "Controller":
    """Return the controller of a broker in DLedger mode; it reports failures to `process`."""
    try:
        from controller.server import Controller
    except ModuleNotFoundError as error:
        raise WrongUsage(f"DLedger mode needs {error.name}: {install('failover')}") from None
    return Controller(mode.controller, tls=tls, on_fatal=process.fail)


def broker_line(broker: "Broker", as_json: bool, beside: Mapping[str, object] | None = None) -> str:
    """Return the start line of a broker: address, cluster, role, store path and durability.

    `beside` are facts about other servers of the process, which only the JSON line has.
    """
    from sprocket_cli.server.server_config import durability

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
        **(beside or {}),
    }
    name_server = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
    sentence = (
        f"The broker[{config.broker_name}, {address}] boot success. serializeType=JSON{name_server}; "
        f"cluster={config.broker_cluster_name} role={config.broker_role.name} id={config.broker_id} "
        f"store={store.store_path_root_dir}; {store.flush_disk_type.name}: {words}"
    )
    return start_line(facts, sentence, as_json)
