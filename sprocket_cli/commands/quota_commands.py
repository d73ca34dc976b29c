"""`sprocket quota`: set, list and delete quotas, and show what is used of them."""

from typing import Any

import click

from sprocket_cli.client_session import HELP, json_option, namesrv_option, print_found, with_admin
from sprocket_cli.commands.masters import at_masters, changed_at_masters, cluster_option
from sprocket_cli.quota_options import NAME_HELP, limit_options, quota_lines, use_lines


@click.group(context_settings=HELP)
def quota() -> None:
    """Set, list and delete quotas, and show what is used of them."""


@quota.command("set", help=f"Set quota NAME, in place of the one that it had.\n\n{NAME_HELP}")
@click.argument("name")
@limit_options(lambda words: "--" + words.replace("_", "-"))
@cluster_option
@namesrv_option
def set_quota(name: str, cluster: str, namesrv: str | None, **limits: Any) -> None:
    """Set a quota at each master."""
    from sprocket.remoting.bodies.quota import Quota

    wanted = Quota(name, **limits)
    masters = changed_at_masters(namesrv, cluster, lambda admin, address: admin.set_quota(address, wanted))
    click.echo(f"quota {name} is set at {masters}")


@quota.command("delete")
@click.argument("name")
@cluster_option
@namesrv_option
def delete_quota(name: str, cluster: str, namesrv: str | None) -> None:
    """Delete quota NAME."""
    masters = changed_at_masters(namesrv, cluster, lambda admin, address: admin.delete_quota(address, name))
    click.echo(f"quota {name} is deleted at {masters}")


@quota.command("list")
@cluster_option
@namesrv_option
@json_option
def list_quotas(cluster: str, namesrv: str | None, as_json: bool) -> None:
    """List quotas; a line for each master that differs."""
    found = with_admin(namesrv, lambda admin: at_masters(admin, cluster, admin.quotas))
    print_found(found, quota_lines(found), as_json=as_json)


@quota.command("top")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Lines to show.")
@cluster_option
@namesrv_option
@json_option
def top(count: int, cluster: str, namesrv: str | None, as_json: bool) -> None:
    """Show the quotas that are used most, at each master."""
    found = with_admin(namesrv, lambda admin: at_masters(admin, cluster, admin.quota_usage))
    print_found(found, use_lines(found, count), as_json=as_json)
