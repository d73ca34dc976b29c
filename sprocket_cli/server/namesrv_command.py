"""Runs a name server: used by `mqnamesrv`, whose start line `sprocket standalone` prints, too."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from sprocket_cli.server.controller_command import make_controller, require_controller
from sprocket_cli.server.server_commands import start_line

if TYPE_CHECKING:
    from sprocket.common.config.configuration import Configuration


def run_namesrv(configuration: "Configuration", as_json: bool, log_level: str) -> None:
    """Run a name server until a signal, then exit the process."""
    from namesrv.config import NamesrvConfig
    from namesrv.server import NameServer
    from sprocket.common.config.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings
    from sprocket_cli.server.health_server import HealthServer, namesrv_conditions
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process, Server

    config = configuration.of(NamesrvConfig)
    log = ServerLog(config, log_level)
    process = Process()
    server = NameServer(
        config, tls=configuration.of(TlsSettings), on_bug=process.fail, file=ConfigurationFile.of(configuration)
    )
    server.settings.on_update.append(log.follow(lambda: server.settings.current))
    health = HealthServer(config, config.bind_address)
    health.watch(namesrv_conditions(server))
    servers: list[Callable[[], Server]] = [lambda: health, lambda: server]
    if config.enable_controller_in_namesrv:
        require_controller(configuration)
        controller = make_controller(configuration, process, server.access)
        controller.settings.on_update.append(log.follow(lambda: controller.settings.current))
        servers.append(lambda: controller)
    sys.exit(process.run(servers, lambda: namesrv_line(config.bind_address, server.port, as_json)))


def namesrv_line(host: str, port: int, as_json: bool) -> str:
    """Return the start line of a name server."""
    sentence = f"The Name Server boot success. serializeType=JSON, address {host}:{port}"
    return start_line({"server": "namesrv", "address": f"{host}:{port}", "port": port}, sentence, as_json)
