"""`mqadmin` about quotas, in the style of RocketMQ's commands.  Sprocket's own: RocketMQ has no quotas.

They do what `sprocket quota` does, at one broker or at the masters of a cluster.
"""

from typing import Any, Final

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.quota import Quota
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import CommandFailed, json_option, print_found
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.quota_options import NAME_HELP, limit_options, quota_lines, use_lines
from sprocket_cli.target import Target, target_options

_OWN: Final = "(Sprocket's own command)"
_masters = target_options("Every master of this cluster.")
_quota_option = click.option("-q", "--quota", "name", required=True, help="Name of the quota: dimension:pattern.")


def _camel(words: str) -> str:
    first, *others = words.split("_")
    return "--" + first + "".join(word.capitalize() for word in others)


@admin_command("updateQuota", f"Set a quota {_OWN}.\n\n{NAME_HELP}")
@_masters
@_quota_option
@limit_options(_camel)
async def update_quota(admin: AdminClient, target: Target, name: str, **limits: Any) -> None:
    """Set a quota at each master."""
    wanted = Quota(name, **limits)
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.set_quota(address, wanted),
        done=lambda address: f"set quota {name} to {address} success.",
    )


@admin_command("deleteQuota", f"Delete a quota {_OWN}.")
@_masters
@_quota_option
async def delete_quota(admin: AdminClient, target: Target, name: str) -> None:
    """Delete a quota at each master."""
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.delete_quota(address, name),
        done=lambda address: f"delete quota {name} from {address} success.",
    )


@admin_command("getQuota", f"Show the quotas of masters {_OWN}.")
@_masters
@click.option("-q", "--quota", "name", help="Only the quota of this name.")
@json_option
async def get_quota(admin: AdminClient, target: Target, name: str | None, as_json: bool) -> None:
    """Show quotas."""

    def show(tables: dict[str, dict[str, Quota]]) -> None:
        found = {
            address: {one: quota for one, quota in table.items() if name in (None, one)}
            for address, table in tables.items()
        }
        if name is not None and not any(found.values()):
            raise CommandFailed(f"there is no quota {name!r}; getQuota without -q lists all")
        print_found(found, quota_lines(found), as_json=as_json)

    await ask_each(await target.addresses(admin), admin.quotas, show=show)


@admin_command("getQuotaUsage", f"Show the quotas that are used most {_OWN}.")
@_masters
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Lines to show.")
@json_option
async def get_quota_usage(admin: AdminClient, target: Target, count: int, as_json: bool) -> None:
    """Show what is used of quotas."""
    await ask_each(
        await target.addresses(admin),
        admin.quota_usage,
        show=lambda found: print_found(found, use_lines(found, count), as_json=as_json),
    )
