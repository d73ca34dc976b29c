"""`mqproxy`: a proxy for RocketMQ 5 clients, with RocketMQ's flags.

Source: RocketMQ 5.3.3, `ProxyStartup`, `CommandLineArgument`.
"""

import importlib.util
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from sprocket.common.extras import install
from sprocket_cli.client_session import HELP, LEVELS, WrongUsage, tool_tls, wrong_usage
from sprocket_cli.server.server_commands import checked, namesrv_flag, printed_only, start_line

if TYPE_CHECKING:
    from broker.server import Broker
    from proxy.config import ProxyConfig
    from proxy.proxy_server import Proxy
    from sprocket.common.config.configuration import Configuration
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process
    from store.config.store_config import StoreConfig

_FILE = click.Path(dir_okay=False, path_type=Path)
# A worker gets this much longer than its own limit of a stop.
_STOP_SLACK_S: Final = 10.0
# grpcio's former listener takes about a fifth less CPU for a send.
_GRPC_EXPERIMENTS: Final = "-event_engine_listener"


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
@click.option(
    "--log-level", type=LEVELS, default="info", show_default=True,
    help="Level of the log; logLevels sets components apart.",
)  # fmt: skip
# Given by the supervisor of a proxy of several processes: number of the worker, and descriptor of its line.
@click.option("--worker", type=(int, int), hidden=True)
def main(
    mode: str | None, proxy_file: Path | None, broker_file: Path | None, namesrv: str | None,
    overrides: tuple[str, ...], print_all: bool, as_json: bool, log_level: str, worker: tuple[int, int] | None,
) -> None:  # fmt: skip
    """Run a proxy: RocketMQ 5 clients speak gRPC to it, and it speaks to the brokers.

    Name servers: -n, else namesrvAddr in the file, else $NAMESRV_ADDR.
    """
    require_grpc()
    from proxy.config import ProxyConfig
    from sprocket_cli.server.server_config import broker_configuration, proxy_configuration

    given = {"proxyMode": mode, "brokerConfigPath": broker_file, "namesrvAddr": namesrv}
    configuration = checked(
        lambda: proxy_configuration(proxy_file, {key: str(value) for key, value in given.items() if value}, overrides)
    )
    if printed_only(configuration, print_all, False):
        return
    config = configuration.of(ProxyConfig)
    if config.proxy_processes > 1 and worker is None:
        run_workers(configuration, proxy_file, overrides, as_json, log_level)
    broker = None
    if config.is_local:
        path = Path(config.broker_config_path) if config.broker_config_path else None
        broker = checked(lambda: broker_configuration(path, config.namesrv_addr or None))
    run_proxy(configuration, broker, as_json, log_level, worker)


def require_grpc() -> None:
    """Choose grpcio's listener, before grpcio is imported.  Raises WrongUsage that names the extra if it is missing."""
    for module in ("grpc", "grpc_health", "grpc_reflection", "google.protobuf"):
        try:
            is_there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise WrongUsage(f"the proxy needs grpcio: {install('proxy')}")
    os.environ.setdefault("GRPC_EXPERIMENTS", _GRPC_EXPERIMENTS)


def run_proxy(
    configuration: "Configuration", broker: "Configuration | None", as_json: bool, log_level: str,
    worker: tuple[int, int] | None,
) -> None:  # fmt: skip
    """Run a proxy, and in local mode a broker before it, until a signal or a failure; then exit the process."""
    from acl.auth.settings import AuthSettings
    from acl.gate_settings import GateSettings
    from proxy.config import ProxyConfig
    from proxy.proxy_server import Proxy
    from proxy.workers.link import Link
    from sprocket.common.clock import SystemClock
    from sprocket.common.errors import SprocketError
    from sprocket_cli.server.health_server import HealthServer, proxy_conditions
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process

    config = configuration.of(ProxyConfig)
    log = ServerLog(config, log_level)
    process = Process()
    if broker is not None:
        _run_beside_broker(process, config, broker, as_json, log)
    link = None if worker is None else (lambda: Link.opened(*worker))
    auth, gate = configuration.of(AuthSettings), configuration.of(GateSettings)
    with wrong_usage():
        tls = tool_tls()
    proxy = Proxy(
        config,
        clock=SystemClock(),
        choose=random.randrange,
        auth=auth,
        gate=gate,
        tls=tls,
        link=link,
        orphaned=lambda: process.fail(SprocketError("the supervisor of this worker has ended")),
        on_fatal=process.fail,
    )
    health = HealthServer(config, config.bind_address)
    health.watch(proxy_conditions(proxy))
    sys.exit(process.run([lambda: health, lambda: proxy], lambda: proxy_line(proxy, as_json)))


def _run_beside_broker(
    process: "Process", config: "ProxyConfig", broker: "Configuration", as_json: bool, log: "ServerLog"
) -> NoReturn:
    # Only here: a proxy before a cluster needs nothing of a broker, and starts sooner.
    from broker.config.broker_config import BrokerConfig
    from broker.server import Broker
    from sprocket.common.config.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.broker_command import broker_line
    from sprocket_cli.server.health_server import HealthServer, broker_conditions, proxy_conditions
    from store.config.store_config import StoreConfig

    own, store, file = broker.of(BrokerConfig), broker.of(StoreConfig), ConfigurationFile.of(broker)
    server = Broker(own, store, tls=broker.of(TlsSettings), on_fatal=process.fail, file=file)
    server.config.on_update.append(log.follow(lambda: server.config.broker))
    proxy = proxy_beside(config, store, broker.of(TlsSettings), server)
    health = HealthServer(config, config.bind_address)
    health.watch({**broker_conditions(server), **proxy_conditions(proxy)})

    def announce() -> str:
        lines = [] if as_json else [broker_line(server, as_json)]
        return "\n".join([*lines, proxy_line(proxy, as_json)])

    sys.exit(process.run([lambda: health, lambda: server, lambda: proxy], announce))


def run_workers(
    configuration: "Configuration", proxy_file: Path | None, overrides: tuple[str, ...], as_json: bool, log_level: str
) -> NoReturn:
    """Run a proxy of several processes until a signal; then exit the process."""
    from proxy.config import ProxyConfig
    from sprocket.common.clock import SystemClock
    from sprocket.common.processes.child_process import bound
    from sprocket.metrics.settings import ExporterType
    from sprocket_cli.server.health_server import HealthServer
    from sprocket_cli.server.proxy_workers import ProxyWorkers
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process

    config = configuration.of(ProxyConfig)
    ServerLog(config, log_level)
    with_remoting = config.remoting_listen_port >= 0
    named = [*config.named_listeners, *(config.remoting_listeners if with_remoting else ())]
    wanted = {"grpcServerPort": config.grpc_server_port}
    if with_remoting:
        wanted["remotingListenPort"] = config.remoting_listen_port
    words = [word for pair in overrides for word in ("--set", pair)]
    words += [] if proxy_file is None else ["-pc", str(proxy_file)]

    def command(number: int, descriptor: int, ports: Sequence[int]) -> list[str]:
        listeners = [
            {"name": one.name, "port": port, "protocol": one.protocol}
            | ({} if one.advertise is None else {"advertise": "{}:{}".format(*one.advertise)})
            for one, port in zip(named, ports[len(wanted) :], strict=True)
        ]
        keys: dict[str, object] = dict(zip(wanted, ports, strict=False))
        keys |= {"namesrvAddr": config.namesrv_addr, "listeners": json.dumps(listeners)}
        # Each worker has its own page and its own name, so that their series are told apart.
        keys["proxyName"] = f"{config.proxy_name}-{number}"
        if config.metrics_exporter_type is ExporterType.PROM:
            keys["metricsPromExporterPort"] = config.metrics_prom_exporter_port + number
        if config.log_file:
            # Two processes cannot roll one file.
            file = Path(config.log_file)
            keys["logFile"] = file.with_name(f"{file.stem}-{number}{file.suffix}")
        # The supervisor tells the health of all.
        keys["healthPort"] = -1
        own = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        own += ["--json", "--log-level", log_level, "--worker", str(number), str(descriptor)]
        return bound("sprocket_cli", "proxy", *words, *own)

    numbers = [*wanted.values(), *(one.port for one in named)]
    limit_s = config.grpc_shutdown_time_seconds + _STOP_SLACK_S
    workers = ProxyWorkers(command, config.proxy_processes, config.bind_address, numbers, SystemClock(), limit_s)
    process = Process()
    health = HealthServer(config, config.bind_address)
    health.watch({"serving": lambda: None if workers.facts["serving"] else "a worker waited for brokers at its start"})
    sys.exit(process.run([lambda: health, lambda: workers], lambda: line_of(workers.facts, as_json)))


def proxy_beside(config: "ProxyConfig", store: "StoreConfig", tls: "TlsSettings", broker: "Broker") -> "Proxy":
    """Return a proxy beside a broker in the same process: with its name servers, cluster, users, rules and TLS.

    It reaches this broker without a socket, and others over connections.
    """
    from proxy.proxy_server import Proxy
    from sprocket.common.clock import SystemClock

    own = broker.config.broker
    config = replace(
        config,
        proxy_mode="LOCAL",
        register_consumers_at_brokers=True,
        namesrv_addr=config.namesrv_addr or own.namesrv_addr or "",
        rocketmq_cluster_name=own.broker_cluster_name,
        auth_config_path=str(store.store_path_root_dir / "config"),
    )
    return Proxy(
        config, clock=SystemClock(), choose=random.randrange, auth=own, gate=own, tls=tls if tls.is_client else None,
        in_process=broker.in_process,
    )  # fmt: skip


def proxy_line(proxy: "Proxy", as_json: bool) -> str:
    """Return the start line of a proxy: its ports, its mode, and whether it serves or waits for brokers."""
    config = proxy.config
    ports = {listener.name: listener.port for listener in [*proxy.listeners, *proxy.remoting.listeners]}
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
    return line_of(facts, as_json)


def line_of(facts: dict[str, Any], as_json: bool) -> str:
    """Return the start line with these facts."""
    state = "serves" if facts["serving"] else "waits for brokers"
    named = ", ".join(f"{name} {port}" for name, port in facts["listeners"].items())
    processes = f"; processes: {facts['processes']}" if "processes" in facts else ""
    sentence = (
        f"rocketmq-proxy startup successfully: {state}; cluster={facts['cluster']} mode={facts['proxyMode']} "
        f"name server is {facts['namesrvAddr']}; ports: {named}{processes}"
    )
    return start_line(facts, sentence, as_json)
