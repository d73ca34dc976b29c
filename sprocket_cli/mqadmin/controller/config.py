"""`mqadmin` about the configuration of controllers: getControllerConfig, updateControllerConfig."""

from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, json_option, name_servers, print_found
from sprocket_cli.mqadmin.config import config_lines
from sprocket_cli.mqadmin.controller.state import ignored_namesrv_option
from sprocket_cli.mqadmin.options import with_controllers

if TYPE_CHECKING:
    from sprocket.client.admin.controller_admin import ControllerAdmin

_controllers_option = click.option(
    "-a",
    "--controllerAddress",
    "controllers",
    required=True,
    help="Controllers, as in 192.168.0.1:9878;192.168.0.2:9878.",
)


@click.command("getControllerConfig", context_settings=HELP)
@ignored_namesrv_option
@_controllers_option
@json_option
def get_controller_config(controllers: str, as_json: bool) -> None:
    """Show the configuration of controllers."""
    addresses = name_servers(controllers)

    async def ask(client: "ControllerAdmin") -> dict[str, dict[str, str]]:
        return {address: await client.config(address) for address in addresses}

    found = with_controllers(controllers, ask)
    print_found(found, config_lines(found), as_json=as_json)


@click.command("updateControllerConfig", context_settings=HELP)
@ignored_namesrv_option
@_controllers_option
@click.option("-k", "--key", required=True, help="Key to change.")
@click.option("-v", "--value", required=True, help="Its new value.")
def update_controller_config(controllers: str, key: str, value: str) -> None:
    """Change a key of controllers while they run."""
    addresses = name_servers(controllers)

    async def ask(client: "ControllerAdmin") -> None:
        for address in addresses:
            await client.update_config(address, {key.strip(): value.strip()})

    with_controllers(controllers, ask)
    click.echo(f"update controller config success![{', '.join(addresses)}]")
    click.echo(f"{key.strip()} : {value.strip()}")
