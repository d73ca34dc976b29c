"""`sprocket quota`: set, list and delete quotas, and show what is used of them."""

from typing import TYPE_CHECKING, Any

import click

from sprocket_cli.client_session import HELP, admin_session, json_option, print_found
from sprocket_cli.commands.masters import at_masters, change_at_masters, cluster_option
from sprocket_cli.quota_options import NAME_HELP, limit_options, quota_lines, use_lines

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient


@click.group(context_settings=HELP)
def quota() -> None:
    """Set, list and delete quotas, and show what is used of them."""


@quota.command("set", help=f"Set quota NAME, in place of the one that it had.\n\n{NAME_HELP}")
@click.argument("name")
@limit_options(lambda words: "--" + words.replace("_", "-"))
@cluster_option
@admin_session
async def set_quota(admin: "AdminClient", name: str, cluster: str, **limits: Any) -> None:
    """Set a quota at each master."""
    from sprocket.remoting.bodies.quota import Quota

    wanted = Quota(name, **limits)
    await change_at_masters(admin, cluster, lambda address: admin.set_quota(address, wanted), f"quota {name} is set")


@quota.command("delete")
@click.argument("name")
@cluster_option
@admin_session
async def delete_quota(admin: "AdminClient", name: str, cluster: str) -> None:
    """Delete quota NAME."""
    await change_at_masters(
        admin, cluster, lambda address: admin.delete_quota(address, name), f"quota {name} is deleted"
    )


@quota.command("list")
@cluster_option
@json_option
@admin_session
async def list_quotas(admin: "AdminClient", cluster: str, as_json: bool) -> None:
    """List quotas; a line for each master that differs."""
    await at_masters(
        admin, cluster, admin.quotas, lambda found: print_found(found, quota_lines(found), as_json=as_json)
    )


@quota.command("top")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Lines to show.")
@cluster_option
@json_option
@admin_session
async def top(admin: "AdminClient", count: int, cluster: str, as_json: bool) -> None:
    """Show the quotas that are used most, at each master."""
    await at_masters(
        admin, cluster, admin.quota_usage, lambda found: print_found(found, use_lines(found, count), as_json=as_json)
    )
