"""Runs a controller: alone for `mqcontroller`, beside a name server for `mqnamesrv`."""

import sys
from typing import TYPE_CHECKING

from sprocket.common.extras import install
from sprocket_cli.client_session import WrongUsage
from sprocket_cli.server.server_commands import checked, start_line

if TYPE_CHECKING:
    from acl.auth.server_access import AccessControl
    from controller.config import ControllerConfig
    from controller.server import Controller
    from sprocket.common.config.configuration import Configuration
    from sprocket_cli.server.server_process import Process


def run_controller(configuration: "Configuration", as_json: bool, log_level: str) -> None:
    """Run a controller until a signal or a failure, then exit the process."""
    from sprocket_cli.server.health_server import HealthServer, controller_conditions
    from sprocket_cli.server.server_log import ServerLog
    from sprocket_cli.server.server_process import Process

    config = require_controller(configuration)
    log = ServerLog(config, log_level)
    process = Process()
    server = make_controller(configuration, process)
    server.settings.on_update.append(log.follow(lambda: server.settings.current))
    health = HealthServer(config, config.bind_address)
    health.watch(controller_conditions(server))
    sys.exit(process.run([lambda: health, lambda: server], lambda: controller_line(config, as_json)))


def require_controller(configuration: "Configuration") -> "ControllerConfig":
    """Return the controller's part of `configuration`.  A key that is missing becomes WrongUsage."""
    from controller.config import ControllerConfig

    config = configuration.of(ControllerConfig)

    def complete() -> "Configuration":
        config.require()
        return configuration

    checked(complete)
    return config


def make_controller(
    configuration: "Configuration", process: "Process", access: "AccessControl | None" = None
) -> "Controller":
    """Return a controller that reports failures to `process`; `access` is that of a name server beside it."""
    from controller.config import ControllerConfig
    from sprocket.common.config.configuration_file import ConfigurationFile
    from sprocket.remoting.tls.settings import TlsSettings

    try:
        from controller.server import Controller
    except ModuleNotFoundError as error:
        raise WrongUsage(f"a controller needs {error.name}: {install('failover')}") from None
    return Controller(
        configuration.of(ControllerConfig),
        tls=configuration.of(TlsSettings),
        on_fatal=process.fail,
        file=ConfigurationFile.of(configuration),
        access=access,
    )


def controller_line(config: "ControllerConfig", as_json: bool) -> str:
    """Return the start line of a controller."""
    own = config.own
    address = f"{own.host}:{own.port}"
    facts: dict[str, object] = {
        "server": "controller",
        "address": address,
        "port": own.port,
        "group": config.controller_dleger_group,
        "id": own.id,
        "peers": config.controller_dleger_peers,
        "store": config.controller_store_path,
    }
    sentence = (
        f"The Controller Server boot success. serializeType=JSON, address {address}; "
        f"group={config.controller_dleger_group} id={own.id} store={config.controller_store_path}"
    )
    return start_line(facts, sentence, as_json)
