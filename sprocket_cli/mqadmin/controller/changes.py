"""`mqadmin` about masters and members under controllers: electMaster, cleanBrokerMetadata, our own forgetController."""

import click

from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket_cli.mqadmin.controller.state import controller_option
from sprocket_cli.mqadmin.options import controller_command

_name_option = click.option("-bn", "--brokerName", "broker_name", required=True, help="Name of the broker group.")


@controller_command("electMaster")
@controller_option
@click.option("-b", "--brokerId", "broker_id", type=int, required=True, help="Id of the broker that becomes master.")
@_name_option
@click.option("-c", "--clusterName", "cluster", required=True, help="Cluster of the broker group.")
async def elect_master(
    controllers: ControllerAdmin, controller: str, broker_id: int, broker_name: str, cluster: str
) -> None:
    """Make a replica the master of its broker group."""
    header, body = await controllers.elect_master(controller, cluster, broker_name, broker_id)
    lines = [
        "",
        f"#ClusterName\t{cluster}",
        f"#BrokerName\t{broker_name}",
        f"#BrokerMasterAddr\t{header.master_address}",
        f"#MasterEpoch\t{header.master_epoch}",
        f"#SyncStateSetEpoch\t{header.sync_state_set_epoch}",
    ]
    members = {} if body.broker_member_group is None else body.broker_member_group.broker_addrs
    # RocketMQ's tool decodes the body as another class, and never shows the brokers.
    lines += [f"\t#Broker\t{member_id}\t{address}" for member_id, address in sorted(members.items())]
    click.echo("\n".join(lines))


@controller_command("cleanBrokerMetadata")
@controller_option
@click.option("-b", "--brokerControllerIdsToClean", "ids", help="Ids of the brokers, as in 1;2;3; all if not given.")
@_name_option
@click.option("-c", "--clusterName", "cluster", help="Cluster of the broker group; required without -l.")
@click.option("-l", "--cleanLivingBroker", "living", is_flag=True, help="Also clean brokers that are alive.")
async def clean_broker_metadata(
    controllers: ControllerAdmin, controller: str, ids: str | None, broker_name: str, cluster: str | None, living: bool
) -> None:
    """Remove brokers that are gone from what the controllers know."""
    if not living and not cluster:
        raise click.UsageError("give -c: without -l the controllers look whether the brokers of the cluster are alive")
    await controllers.clean_broker_data(controller, cluster, broker_name, ids, living=living)
    click.echo(f"clear broker {broker_name} metadata from controller success! ")


@controller_command("forgetController")
@controller_option
@click.option("-i", "--controllerId", "controller_id", required=True, help="Id of the controller that lost its disk.")
async def forget_controller(controllers: ControllerAdmin, controller: str, controller_id: str) -> None:
    """Let a controller that lost its disk come back with an empty one (Sprocket's own command).

    Stop it and remove its folder before, and start it afterwards.  A majority of the others must be running.
    """
    await controllers.forget_controller(controller, controller_id)
    click.echo(f"forget controller {controller_id} success! Start it with an empty folder.")
