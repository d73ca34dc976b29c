"""`mqadmin` about the configuration of controllers: getControllerConfig, updateControllerConfig."""

import click

from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import json_option, name_servers, print_found
from sprocket_cli.mqadmin.config import config_lines, key_option, value_option
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
    await ask_each(
        name_servers(controller),
        controllers.config,
        show=lambda found: print_found(found, config_lines(found), as_json=as_json),
    )


@controller_command("updateControllerConfig")
@_controllers_option
@key_option
@value_option
async def update_controller_config(controllers: ControllerAdmin, controller: str, key: str, value: str) -> None:
    """Change a key of controllers while they run."""
    addresses = name_servers(controller)
    await ask_each(addresses, lambda address: controllers.update_config(address, {key: value}))
    click.echo(f"update controller config success![{', '.join(addresses)}]")
    click.echo(f"{key} : {value}")
