"""`mqadmin` about the move from other controllers to these: our own exportBrokerGroups and importBrokerGroups.

docs/migration.md describes the move.
"""

from pathlib import Path

import click

from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket.remoting.bodies.controller import BrokerGroupState
from sprocket_cli.mqadmin.controller.state import controller_option
from sprocket_cli.mqadmin.files import configs_in_file, export_option, file_option, write_export
from sprocket_cli.mqadmin.options import controller_command


@controller_command("exportBrokerGroups")
@controller_option
@click.option("-b", "--brokerName", "names", required=True, help="Names of the broker groups, separated by ';'.")
@export_option
async def export_broker_groups(controllers: ControllerAdmin, controller: str, names: str, folder: Path) -> None:
    """Write to brokerGroups.json what controllers know of broker groups (Sprocket's own command).

    RocketMQ's controllers answer too.
    """
    found = [name.strip() for name in names.split(";") if name.strip()]
    groups = tuple([await controllers.group_state(controller, name) for name in found])
    write_export(folder, "brokerGroups.json", groups)
    for group in groups:
        click.echo(f"{group.broker_name}: master {group.master_broker_id}, brokers {sorted(group.brokers)}")


@controller_command("importBrokerGroups")
@controller_option
@file_option("what exportBrokerGroups wrote.")
async def import_broker_groups(controllers: ControllerAdmin, controller: str, path: Path) -> None:
    """Have new controllers take over exported broker groups (Sprocket's own command).

    The controllers of the export must have been stopped, and the master of each group must be running.  Groups that the
    new controllers know already are refused.
    """
    for group in configs_in_file(path, BrokerGroupState):
        await controllers.adopt(controller, group)
        click.echo(f"{group.broker_name}: taken over")
