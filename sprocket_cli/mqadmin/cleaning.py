"""`mqadmin` about cleaning.

Source of names, flags and output: RocketMQ 5.3.3, `CleanExpiredCQSubCommand`, `DeleteExpiredCommitLogSubCommand`,
`CleanUnusedTopicCommand`.
"""

from collections.abc import Awaitable, Callable

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket_cli.ask_each import ask_each
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.target import Target, target_options

_target_options = target_options(
    "Every broker of this cluster; without -b and -c, of all clusters.", cluster_flag="--cluster", is_required=False
)


async def _clean(admin: AdminClient, target: Target, request: Callable[[str], Awaitable[None]]) -> None:
    """Ask the broker, the brokers of the cluster, or all brokers."""
    clusters = [target.cluster]
    if not target.broker and not target.cluster:
        clusters = [*sorted((await admin.cluster_info()).cluster_addr_table)]
    addresses = [
        address
        for cluster in clusters
        for address in await Target(target.broker, cluster).addresses(admin, masters_only=False)
    ]
    asked = await ask_each(addresses, request)
    # As RocketMQ prints it: false if there was no broker to ask.
    click.echo("success" if asked else "false")


@admin_command("cleanExpiredCQ")
@_target_options
async def clean_expired_cq(admin: AdminClient, target: Target) -> None:
    """Remove the ConsumeQueues whose messages have all expired."""
    await _clean(admin, target, admin.clean_expired_queues)


@admin_command("deleteExpiredCommitLog")
@_target_options
async def delete_expired_commit_log(admin: AdminClient, target: Target) -> None:
    """Remove expired CommitLog files now, whatever the hour."""
    await _clean(admin, target, admin.delete_expired_commit_log)


@admin_command("cleanUnusedTopic")
@_target_options
async def clean_unused_topic(admin: AdminClient, target: Target) -> None:
    """Remove the ConsumeQueues of topics that the broker does not know."""
    await _clean(admin, target, admin.clean_unused_topics)
