"""`mqadmin` about masters and members under controllers: electMaster, cleanBrokerMetadata, our own forgetController."""

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.mqadmin.controller.state import controller_option, ignored_namesrv_option
from sprocket_cli.mqadmin.options import with_controllers

_name_option = click.option("-bn", "--brokerName", "broker_name", required=True, help="Name of the broker group.")


@click.command("electMaster", context_settings=HELP)
@ignored_namesrv_option
@controller_option
@click.option("-b", "--brokerId", "broker_id", type=int, required=True, help="Id of the broker that becomes master.")
@_name_option
@click.option("-c", "--clusterName", "cluster", required=True, help="Cluster of the broker group.")
def elect_master(controller: str, broker_id: int, broker_name: str, cluster: str) -> None:
    """Make a replica the master of its broker group."""
    cluster, broker_name = cluster.strip(), broker_name.strip()
    header, body = with_controllers(
        controller, lambda controllers: controllers.elect_master(controller, cluster, broker_name, broker_id)
    )
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
    for line in lines:
        click.echo(line)


@click.command("cleanBrokerMetadata", context_settings=HELP)
@ignored_namesrv_option
@controller_option
@click.option("-b", "--brokerControllerIdsToClean", "ids", help="Ids of the brokers, as in 1;2;3; all if not given.")
@_name_option
@click.option("-c", "--clusterName", "cluster", help="Cluster of the broker group; required without -l.")
@click.option("-l", "--cleanLivingBroker", "living", is_flag=True, help="Also clean brokers that are alive.")
def clean_broker_metadata(
    controller: str, ids: str | None, broker_name: str, cluster: str | None, living: bool
) -> None:
    """Remove brokers that are gone from what the controllers know."""
    if not living and not (cluster or "").strip():
        raise click.UsageError("give -c: without -l the controllers look whether the brokers of the cluster are alive")
    with_controllers(
        controller,
        lambda controllers: controllers.clean_broker_data(
            controller, cluster and cluster.strip(), broker_name.strip(), ids and ids.strip(), living=living
        ),
    )
    click.echo(f"clear broker {broker_name.strip()} metadata from controller success! ")


@click.command("forgetController", context_settings=HELP)
@ignored_namesrv_option
@controller_option
@click.option("-i", "--controllerId", "controller_id", required=True, help="Id of the controller that lost its disk.")
def forget_controller(controller: str, controller_id: str) -> None:
    """Let a controller that lost its disk come back with an empty one (Sprocket's own command).

    Stop it and remove its folder before, and start it afterwards.  A majority of the others must be running.
    """
    with_controllers(controller, lambda controllers: controllers.forget_controller(controller, controller_id.strip()))
    click.echo(f"forget controller {controller_id.strip()} success! Start it with an empty folder.")
