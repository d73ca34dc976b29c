"""`sprocket standalone`: one name server and one broker in one process."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket.cli.client_session import HELP
from sprocket.cli.server.broker_command import broker_line
from sprocket.cli.server.mqproxy import proxy_beside, proxy_line, require_grpc
from sprocket.cli.server.namesrv_command import namesrv_line
from sprocket.cli.server.server_commands import checked, configuration_flags, printed_only

if TYPE_CHECKING:
    from proxy.proxy_server import Proxy
    from sprocket.common.config import Configuration


@click.command(context_settings=HELP)
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    default="sprocket-store",
    show_default=True,
    help="Folder for all data.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, also told to clients.")
@click.option("--port", type=click.IntRange(0, 65535), default=10911, show_default=True, help="Port of the broker.")
@click.option(
    "--namesrv-port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="Port of the name server."
)
@click.option("--proxy", "with_proxy", is_flag=True, help="Also run a proxy for clients that speak gRPC.")
@click.option("--proxy-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port of the proxy.")
@configuration_flags
def standalone(
    store: Path,
    host: str,
    port: int,
    namesrv_port: int,
    with_proxy: bool,
    proxy_port: int,
    file: Path | None,
    print_all: bool,
    print_important: bool,
    overrides: tuple[str, ...],
    as_json: bool,
    log_level: str,
) -> None:
    """Run a name server and a broker in one process, and with --proxy a proxy.

    -c and --set configure the broker; --store, --host and --port override the file.
    """
    if with_proxy:
        require_grpc()
    from sprocket.cli.server.server_config import broker_configuration

    own = (
        f"storePathRootDir={store.absolute()}",
        f"listenPort={port}",
        f"bindAddress={host}",
        f"brokerIP1={host}",
        f"brokerIP2={host}",
        f"namesrvAddr={host}:{namesrv_port}",
    )
    configuration = checked(lambda: broker_configuration(file, None, (*own, *overrides)))
    if printed_only(configuration, print_all, print_important):
        return
    run_standalone(configuration, host, namesrv_port, as_json, log_level, proxy_port if with_proxy else None)


def run_standalone(
    configuration: "Configuration", host: str, namesrv_port: int, as_json: bool, log_level: str, proxy_port: int | None
) -> None:
    """Run all of them until a signal or a failure, then exit the process.  Without `proxy_port` there is no proxy."""
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from namesrv.config import NamesrvConfig
    from namesrv.server import NameServer
    from sprocket.cli.server.server_process import Process, Server, log_to_stderr
    from sprocket.cli.server.table_process import TableProcess
    from sprocket.common.clock import SystemClock
    from sprocket.common.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from store.config.store_config import StoreConfig

    log_to_stderr(log_level)
    process = Process()
    store, tls = configuration.of(StoreConfig), configuration.of(TlsSettings)
    kv_config = store.store_path_root_dir / "namesrv" / "kvConfig.json"
    namesrv = NamesrvConfig(bind_address=host, listen_port=namesrv_port, kv_config_path=kv_config)
    name_server = NameServer(namesrv, tls=tls, on_bug=process.fail)
    brokers: list[Broker] = []
    proxies: list[Proxy] = []

    def make_broker() -> Broker:
        # The name server has started, so its port is known (--namesrv-port may be 0).
        config = replace(configuration.of(BrokerConfig), namesrv_addr=f"{host}:{name_server.port}")
        file = ConfigurationFile.of(configuration)
        brokers.append(Broker(config, store, tls=tls, on_fatal=process.fail, file=file))
        return brokers[0]

    def make_proxy() -> "Proxy":
        from proxy.config import ProxyConfig

        config = ProxyConfig(bind_address=host, grpc_server_port=proxy_port or 0)
        proxies.append(proxy_beside(config, brokers[0].config.broker, store))
        return proxies[0]

    def announce() -> str:
        lines = [] if as_json else [namesrv_line(host, name_server.port, as_json)]
        lines += [] if as_json else [proxy_line(proxy, as_json) for proxy in proxies]
        return "\n".join([*lines, broker_line(brokers[0], as_json)])

    servers: list[Callable[[], Server]] = [lambda: name_server, make_broker]
    if configuration.of(BrokerConfig).keeps_tables:
        servers.append(lambda: TableProcess(brokers[0].config.broker, store, SystemClock()))
    if proxy_port is not None:
        servers.append(make_proxy)
    sys.exit(process.run(servers, announce))
