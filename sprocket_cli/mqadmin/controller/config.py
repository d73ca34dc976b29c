"""`mqadmin` about the configuration of controllers: getControllerConfig, updateControllerConfig."""

from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, json_option, name_servers, print_json, with_admin
from sprocket_cli.mqadmin.controller.state import ignored_namesrv_option

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

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

    async def ask(admin: "AdminClient") -> dict[str, dict[str, str]]:
        from sprocket.client.admin.controller_admin import ControllerAdmin

        return {address: await ControllerAdmin(admin).config(address) for address in addresses}

    found = with_admin(controllers, ask)
    if as_json:
        print_json(found)
        return
    for address, values in found.items():
        click.echo(f"============{address}============")
        for key, value in sorted(values.items()):
            click.echo(f"{key:<50}=  {value}")


@click.command("updateControllerConfig", context_settings=HELP)
@ignored_namesrv_option
@_controllers_option
@click.option("-k", "--key", required=True, help="Key to change.")
@click.option("-v", "--value", required=True, help="Its new value.")
def update_controller_config(controllers: str, key: str, value: str) -> None:
    """Change a key of controllers while they run."""
    addresses = name_servers(controllers)

    async def ask(admin: "AdminClient") -> None:
        from sprocket.client.admin.controller_admin import ControllerAdmin

        for address in addresses:
            await ControllerAdmin(admin).update_config(address, {key.strip(): value.strip()})

    with_admin(controllers, ask)
    click.echo(f"update controller config success![{', '.join(addresses)}]")
    click.echo(f"{key.strip()} : {value.strip()}")
