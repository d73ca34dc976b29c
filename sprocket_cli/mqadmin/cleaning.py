"""`mqadmin` about cleaning.

Source of names, flags and output: RocketMQ 5.3.3, `CleanExpiredCQSubCommand`, `DeleteExpiredCommitLogSubCommand`,
`CleanUnusedTopicCommand`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import admin_command, with_admin
from sprocket_cli.mqadmin.options import Target, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

_target_options = target_options(
    "Every broker of this cluster; without -b and -c, of all clusters.", cluster_flag="--cluster", is_required=False
)
# Asks the broker at an address.
Request = Callable[["AdminClient", str], Awaitable[None]]


async def _ask_all(admin: "AdminClient", target: Target, request: Request) -> int:
    """Ask the broker, the brokers of the cluster, or all brokers.  Return how many were asked."""
    if target.broker:
        addresses = [target.broker]
    else:
        clusters = [target.cluster] if target.cluster else sorted((await admin.cluster_info()).cluster_addr_table)
        addresses = [
            address for name in clusters for address in await admin.broker_addresses(name, masters_only=False)
        ]  # fmt: skip
    for address in addresses:
        await request(admin, address)
    return len(addresses)


def _run(namesrv: str | None, target: Target, request: Request) -> None:
    asked = with_admin(namesrv, lambda admin: _ask_all(admin, target, request))
    # As RocketMQ prints it: false if there was no broker to ask.
    click.echo("success" if asked else "false")


@admin_command("cleanExpiredCQ")
@_target_options
def clean_expired_cq(namesrv: str | None, target: Target) -> None:
    """Remove the ConsumeQueues whose messages have all expired."""
    _run(namesrv, target, lambda admin, address: admin.clean_expired_queues(address))


@admin_command("deleteExpiredCommitLog")
@_target_options
def delete_expired_commit_log(namesrv: str | None, target: Target) -> None:
    """Remove expired CommitLog files now, whatever the hour."""
    _run(namesrv, target, lambda admin, address: admin.delete_expired_commit_log(address))


@admin_command("cleanUnusedTopic")
@_target_options
def clean_unused_topic(namesrv: str | None, target: Target) -> None:
    """Remove the ConsumeQueues of topics that the broker does not know."""
    _run(namesrv, target, lambda admin, address: admin.clean_unused_topics(address))
