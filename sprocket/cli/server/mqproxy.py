"""`mqproxy`: a proxy for RocketMQ 5 clients, with RocketMQ's flags.

Source: RocketMQ 5.3.3, `ProxyStartup`, `CommandLineArgument`.
"""

import importlib.util
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket.cli.client_session import HELP, WrongUsage
from sprocket.cli.server.server_commands import checked, namesrv_flag, printed_only, start_line

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from proxy.config import ProxyConfig
    from proxy.proxy_server import Proxy
    from sprocket.common.config import Configuration
    from store.config.store_config import StoreConfig

_FILE = click.Path(dir_okay=False, path_type=Path)
_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command(context_settings=HELP)
@click.option("-pm", "--proxyMode", "mode", help="cluster (default), or local: with a broker in the same process.")
@click.option("-pc", "--proxyConfigPath", "proxy_file", type=_FILE, help="Configuration of the proxy, rmq-proxy.json.")
@click.option("-bc", "--brokerConfigPath", "broker_file", type=_FILE, help="Configuration of the broker in local mode.")
@namesrv_flag
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key of the proxy; overrides the file."
)
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print all keys and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the start line as JSON.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True, help="Level of the log on stderr.")
def main(
    mode: str | None,
    proxy_file: Path | None,
    broker_file: Path | None,
    namesrv: str | None,
    overrides: tuple[str, ...],
    print_all: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Run a proxy: RocketMQ 5 clients speak gRPC to it, and it speaks to the brokers.

    Name servers: -n, else namesrvAddr in the file, else $NAMESRV_ADDR.
    """
    require_grpc()
    from proxy.config import ProxyConfig
    from sprocket.cli.server.server_config import broker_configuration, proxy_configuration

    given = {"proxyMode": mode, "brokerConfigPath": broker_file, "namesrvAddr": namesrv}
    configuration = checked(
        lambda: proxy_configuration(proxy_file, {key: str(value) for key, value in given.items() if value}, overrides)
    )
    if printed_only(configuration, print_all, False):
        return
    config = configuration.of(ProxyConfig)
    broker = None
    if config.is_local:
        path = Path(config.broker_config_path) if config.broker_config_path else None
        broker = checked(lambda: broker_configuration(path, config.namesrv_addr or None))
    run_proxy(configuration, broker, as_json, log_level)


def require_grpc() -> None:
    """Raise WrongUsage that names the extra if grpcio is missing."""
    for module in ("grpc", "grpc_health", "grpc_reflection", "google.protobuf"):
        try:
            is_there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise WrongUsage("the proxy needs grpcio: pip install 'sprocket-mq[proxy]'")


def run_proxy(configuration: "Configuration", broker: "Configuration | None", as_json: bool, log_level: str) -> None:
    """Run a proxy, and in local mode a broker before it, until a signal or a failure; then exit the process."""
    from acl.auth.settings import AuthSettings
    from acl.gate_settings import GateSettings
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from proxy.config import ProxyConfig
    from proxy.proxy_server import Proxy
    from sprocket.cli.server.broker_command import broker_line
    from sprocket.cli.server.server_process import Process, Server, log_to_stderr
    from sprocket.common.clock import SystemClock
    from sprocket.common.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from store.config.store_config import StoreConfig

    log_to_stderr(log_level)
    process = Process()
    servers: list[Callable[[], Server]] = []
    brokers: list[Broker] = []
    config = configuration.of(ProxyConfig)
    if broker is None:
        auth, gate = configuration.of(AuthSettings), configuration.of(GateSettings)
        proxy = Proxy(config, clock=SystemClock(), choose=random.randrange, auth=auth, gate=gate)
    else:
        own, store, file = broker.of(BrokerConfig), broker.of(StoreConfig), ConfigurationFile.of(broker)
        brokers.append(Broker(own, store, tls=broker.of(TlsSettings), on_fatal=process.fail, file=file))
        servers.append(lambda: brokers[0])
        proxy = proxy_beside(config, own, store)
    servers.append(lambda: proxy)

    def announce() -> str:
        lines = [] if as_json else [broker_line(one, as_json) for one in brokers]
        return "\n".join([*lines, proxy_line(proxy, as_json)])

    sys.exit(process.run(servers, announce))


def proxy_beside(config: "ProxyConfig", own: "BrokerConfig", store: "StoreConfig") -> "Proxy":
    """Return a proxy beside a broker in the same process: with its name servers, cluster, users and rules."""
    from proxy.proxy_server import Proxy
    from sprocket.common.clock import SystemClock

    config = replace(
        config,
        proxy_mode="LOCAL",
        namesrv_addr=config.namesrv_addr or own.namesrv_addr or "",
        rocketmq_cluster_name=own.broker_cluster_name,
        auth_config_path=str(store.store_path_root_dir / "config"),
    )
    return Proxy(config, clock=SystemClock(), choose=random.randrange, auth=own, gate=own)


def proxy_line(proxy: "Proxy", as_json: bool) -> str:
    """Return the start line of a proxy: its ports, its mode, and whether it serves or waits for brokers."""
    config = proxy.config
    ports = {listener.name: listener.port for listener in proxy.listeners}
    facts: dict[str, object] = {
        "server": "proxy",
        "port": proxy.listeners[0].port,
        "listeners": ports,
        "proxyMode": config.proxy_mode.upper(),
        "cluster": config.rocketmq_cluster_name,
        "namesrvAddr": config.namesrv_addr,
        "tlsServerMode": config.tls_server_mode,
        "serving": proxy.is_serving,
    }
    state = "serves" if proxy.is_serving else "waits for brokers"
    named = ", ".join(f"{name} {port}" for name, port in ports.items())
    sentence = (
        f"rocketmq-proxy startup successfully: {state}; cluster={config.rocketmq_cluster_name} "
        f"mode={config.proxy_mode.upper()} name server is {config.namesrv_addr}; ports: {named}"
    )
    return start_line(facts, sentence, as_json)
