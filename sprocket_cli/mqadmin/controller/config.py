"""`mqadmin` about the configuration of controllers: getControllerConfig, updateControllerConfig."""

import click

from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import json_option, name_servers
from sprocket_cli.mqadmin.config import key_option, show_change, show_configs, value_option
from sprocket_cli.mqadmin.options import controller_command

_controllers_option = click.option(
    "-a", "--controllerAddress", "controller", required=True,
    help="Controllers, as in 192.168.0.1:9878;192.168.0.2:9878.",
)  # fmt: skip


@controller_command("getControllerConfig")
@_controllers_option
@json_option
async def get_controller_config(controllers: ControllerAdmin, controller: str, as_json: bool) -> None:
    """Show the configuration of controllers."""
    await ask_each(name_servers(controller), controllers.config, show=lambda found: show_configs(found, as_json))


@controller_command("updateControllerConfig")
@_controllers_option
@key_option
@value_option
async def update_controller_config(controllers: ControllerAdmin, controller: str, key: str, value: str) -> None:
    """Change a key of controllers while they run."""
    await ask_each(
        name_servers(controller),
        lambda address: controllers.update_config(address, {key: value}),
        show=lambda changed: show_change("controller", changed, key, value),
    )
