"""`mqadmin` about what controllers and brokers know: getControllerMetaData, getSyncStateSet, getBrokerEpoch."""

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import broker_names
from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket.remoting.bodies.controller import EpochEntryCache, ReplicaIdentity, ReplicasInfo
from sprocket.remoting.headers.controller import GetMetaDataResponseHeader
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import HELP, SERVER_ADDRESS, json_option, namesrv_option, print_found, with_admin
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command, controller_command, interval_option, repeat

controller_option = click.option(
    "-a", "--controllerAddress", "controller", required=True, type=SERVER_ADDRESS, help="Address of any controller."
)


@controller_command("getControllerMetaData")
@controller_option
@json_option
async def get_controller_metadata(controllers: ControllerAdmin, controller: str, as_json: bool) -> None:
    """Show the leader of the controllers and its peers."""
    found = await controllers.metadata(controller)
    print_found(found, metadata_lines(found), as_json=as_json)


def metadata_lines(found: GetMetaDataResponseHeader) -> list[str]:
    """Return RocketMQ's lines."""
    return [
        "",
        f"#ControllerGroup\t{java_form(found.group)}",
        f"#ControllerLeaderId\t{java_form(found.controller_leader_id)}",
        f"#ControllerLeaderAddress\t{java_form(found.controller_leader_address)}",
        *(f"#Peer:\t{peer}" for peer in (found.peers or "").split(";") if peer),
    ]


@click.command("getSyncStateSet", context_settings=HELP)
@namesrv_option
@controller_option
@click.option("-c", "--clusterName", "cluster", help="Every broker group of this cluster, as name servers know it.")
@click.option("-b", "--brokerName", "broker_name", help="One broker group.")
@interval_option
@json_option
def get_sync_state_set(
    namesrv: str | None, controller: str, cluster: str | None, broker_name: str | None, interval_s: float | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show which replicas of a broker group are in sync."""
    if (broker_name is None) == (cluster is None):
        raise click.UsageError("give exactly one of -b and -c")

    async def ask(admin: AdminClient) -> None:
        async def show() -> None:
            names = [str(broker_name).strip()]
            if cluster is not None:
                names = broker_names(await admin.cluster_info(), cluster.strip())
            found = await ControllerAdmin(admin).sync_state(controller, names)
            lines = (line for name in sorted(found) for line in sync_state_lines(name, found[name]))
            print_found(found, lines, as_json=as_json)

        await repeat(show, interval_s)

    # With -b no name server is needed.
    with_admin(controller if cluster is None else namesrv, ask)


def sync_state_lines(name: str, info: ReplicasInfo) -> list[str]:
    """Return RocketMQ's lines about one broker group."""
    lines = [
        "",
        f"#brokerName\t{name}",
        f"#MasterBrokerId\t{java_form(info.master_broker_id)}",
        f"#MasterAddr\t{java_form(info.master_address)}",
        f"#MasterEpoch\t{info.master_epoch}",
        f"#SyncStateSetEpoch\t{info.sync_state_set_epoch}",
        f"#SyncStateSetNums\t{len(info.in_sync_replicas)}",
    ]
    for replica in info.in_sync_replicas:
        lines += ["", f"InSyncReplica:\t{_identity(replica)}"]
    for replica in info.not_in_sync_replicas:
        lines += ["", f"NotInSyncReplica:\t{_identity(replica)}"]
    return lines


@admin_command("getBrokerEpoch")
@click.option("-c", "--clusterName", "cluster", help="Every broker of this cluster.")
@click.option("-b", "--brokerName", "broker_name", help="The brokers of one group.")
@interval_option
@json_option
async def get_broker_epoch(
    admin: AdminClient, cluster: str | None, broker_name: str | None, interval_s: float | None, as_json: bool
) -> None:
    """Show the epochs of brokers: where in the log each master began."""
    if (broker_name is None) == (cluster is None):
        raise click.UsageError("give exactly one of -b and -c")

    def print_each(found: dict[str, EpochEntryCache]) -> None:
        lines = (line for address, cache in found.items() for line in epoch_lines(address, cache))
        print_found(found, lines, as_json=as_json)

    async def show() -> None:
        addresses = await _brokers(admin, cluster, broker_name)
        await ask_each(addresses, ControllerAdmin(admin).epochs, show=print_each)

    await repeat(show, interval_s)


def epoch_lines(address: str, cache: EpochEntryCache) -> list[str]:
    """Return RocketMQ's lines about one broker; the last epoch ends with the log."""
    lines = [
        "",
        f"#clusterName\t{cache.cluster_name}",
        f"#brokerName\t{cache.broker_name}",
        f"#brokerAddr\t{address}",
        f"#brokerId\t{cache.broker_id}",
    ]
    for number, entry in enumerate(cache.epoch_list, 1):
        end = cache.max_offset if number == len(cache.epoch_list) else entry.end_offset
        shown = f"EpochEntry{{epoch={entry.epoch}, startOffset={entry.start_offset}, endOffset={end}}}"
        lines.append(f"#Epoch: {shown}")
    return lines


async def _brokers(admin: AdminClient, cluster: str | None, broker_name: str | None) -> list[str]:
    """Return the addresses of the brokers of a cluster or of a group.  Raises AdminError if there is none."""
    if cluster is not None:
        return await admin.broker_addresses(cluster, masters_only=False)
    data = (await admin.cluster_info()).broker_addr_table.get(str(broker_name))
    if data is None:
        raise AdminError(f"broker group {broker_name} is not known to the name server")
    return [address for _, address in sorted(data.broker_addrs.items())]


def _identity(replica: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={replica.broker_id}, "
        f"brokerAddress='{replica.broker_address}', alive={java_form(replica.alive)}}}"
    )
