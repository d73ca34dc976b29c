"""`sprocket standalone`: one name server and one broker in one process."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.server.broker_command import broker_line
from sprocket_cli.server.dashboard_command import dashboard_beside, dashboard_line, require_web
from sprocket_cli.server.mqproxy import proxy_beside, proxy_line, require_grpc
from sprocket_cli.server.namesrv_command import namesrv_line
from sprocket_cli.server.server_commands import checked, configuration_flags, printed_only

if TYPE_CHECKING:
    from dashboard.server import Dashboard
    from namesrv.server import NameServer
    from proxy.proxy_server import Proxy
    from sprocket.common.config.configuration import Configuration
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.server_process import Process, Server


@click.command(context_settings=HELP)
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), default="sprocket-store", show_default=True,
    help="Folder for all data.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, also told to clients.")
@click.option("--port", type=click.IntRange(0, 65535), default=10911, show_default=True, help="Port of the broker.")
@click.option(
    "--namesrv-port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="Port of the name server."
)
@click.option("--proxy", "with_proxy", is_flag=True, help="Also run a proxy for clients that speak gRPC.")
@click.option("--proxy-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port of the proxy.")
@click.option(
    "--dashboard-port", type=click.IntRange(0, 65535), help="Also serve the dashboard on this port, such as 8080."
)
@click.option("--allow-changes", is_flag=True, help="Let visitors of the dashboard change things.")
@configuration_flags
def standalone(
    store: Path, host: str, port: int, namesrv_port: int, with_proxy: bool, proxy_port: int, dashboard_port: int | None,
    allow_changes: bool, file: Path | None, print_all: bool, print_important: bool, overrides: tuple[str, ...],
    as_json: bool, log_level: str,
) -> None:  # fmt: skip
    """Run a name server and a broker in one process; with --proxy a proxy, with --dashboard-port a dashboard.

    -c and --set configure the broker; --store, --host and --port override the file.
    """
    if with_proxy:
        require_grpc()
    if dashboard_port is not None:
        require_web()
    from sprocket_cli.server.server_config import broker_configuration

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
    beside = _Beside(proxy_port if with_proxy else None, dashboard_port, allow_changes)
    run_standalone(configuration, host, namesrv_port, as_json, log_level, beside)


@dataclass(frozen=True)
class _Beside:
    """What else runs in the process: a proxy and a dashboard on these ports, None for neither."""

    proxy_port: int | None
    dashboard_port: int | None
    allow_changes: bool


@dataclass(frozen=True)
class _OnPort:
    """Server whose port is an option of the command: an error names the option in place of the key."""

    server: "Server"
    option: str

    async def start(self) -> None:
        from sprocket.remoting.serving.listening import CannotListen

        try:
            await self.server.start()
        except CannotListen as error:
            raise (error if error.setting == "haListenPort" else error.named(self.option)) from None

    async def stop(self) -> None:
        await self.server.stop()


def run_standalone(
    configuration: "Configuration", host: str, namesrv_port: int, as_json: bool, log_level: str, beside: _Beside
) -> None:
    """Run all of them until a signal or a failure, then exit the process."""
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from sprocket.common.clock import SystemClock
    from sprocket.common.config.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.beside_processes import processes_beside
    from sprocket_cli.server.health_server import HealthServer, broker_conditions
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process, Server
    from store.config.store_config import StoreConfig

    log = ServerLog(configuration.of(BrokerConfig), log_level)
    process = Process()
    store, tls = configuration.of(StoreConfig), configuration.of(TlsSettings)
    name_server = _name_server(host, namesrv_port, store.store_path_root_dir, tls, process)
    name_server.settings.on_update.append(log.follow(lambda: name_server.settings.current))
    brokers: list[Broker] = []
    proxies: list[Proxy] = []
    dashboards: list[Dashboard] = []

    def make_broker() -> Server:
        # The name server has started, so its port is known (--namesrv-port may be 0).
        config = replace(configuration.of(BrokerConfig), namesrv_addr=f"{host}:{name_server.port}")
        brokers.append(Broker(config, store, tls=tls, on_fatal=process.fail, file=ConfigurationFile.of(configuration)))
        brokers[0].config.on_update.append(log.follow(lambda: brokers[0].config.broker))
        health.watch(broker_conditions(brokers[0]))
        return _OnPort(brokers[0], "--port")

    def make_proxy() -> "Proxy":
        from proxy.config import ProxyConfig

        config = ProxyConfig(bind_address=host, grpc_server_port=beside.proxy_port or 0, remoting_listen_port=-1)
        proxies.append(proxy_beside(config, store, tls, brokers[0]))
        return proxies[0]

    def make_dashboard() -> Server:
        port = beside.dashboard_port or 0
        dashboards.append(dashboard_beside(host, port, beside.allow_changes, f"{host}:{name_server.port}"))
        return _OnPort(dashboards[0], "--dashboard-port")

    def announce() -> str:
        if as_json:
            return broker_line(brokers[0], as_json, _facts_beside(proxies, dashboards))
        lines = [namesrv_line(host, name_server.port, as_json), *(proxy_line(proxy, as_json) for proxy in proxies)]
        lines += [*(dashboard_line(served, as_json) for served in dashboards), broker_line(brokers[0], as_json)]
        return "\n".join([*lines, f"export NAMESRV_ADDR={host}:{name_server.port}"])

    health = HealthServer(configuration.of(BrokerConfig), host)
    servers: list[Callable[[], Server]] = [lambda: health, lambda: _OnPort(name_server, "--namesrv-port"), make_broker]
    servers += processes_beside(configuration.of(BrokerConfig), store, SystemClock())
    if beside.proxy_port is not None:
        servers.append(make_proxy)
    if beside.dashboard_port is not None:
        servers.append(make_dashboard)
    sys.exit(process.run(servers, announce))


def _facts_beside(proxies: "Sequence[Proxy]", dashboards: "Sequence[Dashboard]") -> dict[str, object]:
    """Return what the one line of JSON, which programs wait for, says of the proxy and the dashboard."""
    facts: dict[str, object] = {}
    for proxy in proxies:
        facts["proxyPort"] = proxy.listeners[0].port
    for served in dashboards:
        facts |= {"dashboardPort": served.port, "dashboardUrl": served.url}
    return facts


def _name_server(host: str, port: int, store: Path, tls: "TlsSettings", process: "Process") -> "NameServer":
    """Return a name server with the default configuration and a folder in the store's."""
    from namesrv.config import NamesrvConfig
    from namesrv.server import NameServer

    kv_config = store / "namesrv" / "kvConfig.json"
    config = NamesrvConfig(bind_address=host, listen_port=port, kv_config_path=kv_config)
    return NameServer(config, tls=tls, on_bug=process.fail)
