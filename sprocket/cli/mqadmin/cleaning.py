"""`mqadmin` about cleaning: cleanExpiredCQ, deleteExpiredCommitLog, cleanUnusedTopic.

Source of names, flags and output: RocketMQ 5.3.3, `CleanExpiredCQSubCommand`, `DeleteExpiredCommitLogSubCommand`,
`CleanUnusedTopicCommand`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from sprocket.cli.client_session import HELP, SERVER_ADDRESS, namesrv_option, with_admin

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

_broker_option = click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, help="Address of one broker.")
_cluster_option = click.option("-c", "--cluster", "cluster", help="Every broker of this cluster; of all without it.")
# Asks the broker at an address.
Request = Callable[["AdminClient", str], Awaitable[None]]


async def _ask_all(admin: "AdminClient", broker: str | None, cluster: str | None, request: Request) -> int:
    """Ask the broker, or those of the cluster, or all; how many."""
    if broker:
        addresses = [broker.strip()]
    else:
        clusters = [cluster.strip()] if cluster else sorted((await admin.cluster_info()).cluster_addr_table)
        addresses = [
            address for name in clusters for address in await admin.broker_addresses(name, masters_only=False)
        ]  # fmt: skip
    for address in addresses:
        await request(admin, address)
    return len(addresses)


def _run(namesrv: str | None, broker: str | None, cluster: str | None, request: Request) -> None:
    asked = with_admin(namesrv, lambda admin: _ask_all(admin, broker, cluster, request))
    # RocketMQ's words: false when there was nobody to ask.
    click.echo("success" if asked else "false")


@click.command("cleanExpiredCQ", context_settings=HELP)
@namesrv_option
@_broker_option
@_cluster_option
def clean_expired_cq(namesrv: str | None, broker: str | None, cluster: str | None) -> None:
    """Clean expired ConsumeQueue on broker."""
    _run(namesrv, broker, cluster, lambda admin, address: admin.clean_expired_queues(address))


@click.command("deleteExpiredCommitLog", context_settings=HELP)
@namesrv_option
@_broker_option
@_cluster_option
def delete_expired_commit_log(namesrv: str | None, broker: str | None, cluster: str | None) -> None:
    """Delete expired CommitLog files."""
    _run(namesrv, broker, cluster, lambda admin, address: admin.delete_expired_commit_log(address))


@click.command("cleanUnusedTopic", context_settings=HELP)
@namesrv_option
@_broker_option
@_cluster_option
def clean_unused_topic(namesrv: str | None, broker: str | None, cluster: str | None) -> None:
    """Clean unused topic on broker."""
    _run(namesrv, broker, cluster, lambda admin, address: admin.clean_unused_topics(address))
