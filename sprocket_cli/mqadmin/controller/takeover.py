"""`mqadmin` about the move from other controllers to these: our own exportBrokerGroups and importBrokerGroups.

docs/migration.md describes the move.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.mqadmin.controller.state import controller_option, ignored_namesrv_option
from sprocket_cli.mqadmin.files import configs_in_file, export_option, file_option, write_export
from sprocket_cli.mqadmin.options import with_controllers

if TYPE_CHECKING:
    from sprocket.client.admin.controller_admin import ControllerAdmin
    from sprocket.remoting.bodies.controller import BrokerGroupState


@click.command("exportBrokerGroups", context_settings=HELP)
@ignored_namesrv_option
@controller_option
@click.option("-b", "--brokerName", "names", required=True, help="Names of the broker groups, separated by ';'.")
@export_option
def export_broker_groups(controller: str, names: str, folder: Path) -> None:
    """Write to brokerGroups.json what controllers know of broker groups (Sprocket's own command).

    RocketMQ's controllers answer too.
    """

    async def ask(client: "ControllerAdmin") -> "list[BrokerGroupState]":
        return [await client.group_state(controller, name.strip()) for name in names.split(";") if name.strip()]

    groups = with_controllers(controller, ask)
    write_export(folder, "brokerGroups.json", tuple(groups))
    for group in groups:
        click.echo(f"{group.broker_name}: master {group.master_broker_id}, brokers {sorted(group.brokers)}")


@click.command("importBrokerGroups", context_settings=HELP)
@ignored_namesrv_option
@controller_option
@file_option("what exportBrokerGroups wrote.")
def import_broker_groups(controller: str, path: Path) -> None:
    """Have new controllers take over exported broker groups (Sprocket's own command).

    The controllers of the export must have been stopped, and the master of each group must be running.  Groups that the
    new controllers know already are refused.
    """
    from sprocket.remoting.bodies.controller import BrokerGroupState

    groups = configs_in_file(path, BrokerGroupState)

    async def ask(client: "ControllerAdmin") -> None:
        for group in groups:
            await client.adopt(controller, group)
            click.echo(f"{group.broker_name}: taken over")

    with_controllers(controller, ask)
