"""`mqadmin` about quotas, in the style of RocketMQ's commands.  Sprocket's own: RocketMQ has no quotas.

They do what `sprocket quota` does, at one broker or at the masters of a cluster.
"""

from typing import TYPE_CHECKING, Any, Final

import click

from sprocket_cli.client_session import HELP, json_option, namesrv_option, print_found
from sprocket_cli.mqadmin.options import Target, ask_each, target_options
from sprocket_cli.quota_options import NAME_HELP, limit_options, quota_lines, use_lines

if TYPE_CHECKING:
    from sprocket.remoting.bodies.quota import Quota

_OWN: Final = "(Sprocket's own command)"
_MASTERS: Final = "Every master of this cluster."
_quota_option = click.option("-q", "--quota", "name", required=True, help="Name of the quota: dimension:pattern.")


def _camel(words: str) -> str:
    first, *others = words.split("_")
    return "--" + first + "".join(word.capitalize() for word in others)


@click.command("updateQuota", context_settings=HELP, help=f"Set a quota {_OWN}.\n\n{NAME_HELP}")
@namesrv_option
@target_options(_MASTERS)
@_quota_option
@limit_options(_camel)
def update_quota(namesrv: str | None, target: Target, name: str, **limits: Any) -> None:
    """Set a quota at each master."""
    from sprocket.remoting.bodies.quota import Quota

    wanted = Quota(name.strip(), **limits)
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.set_quota(address, wanted),
        done=lambda address: f"set quota {wanted.name} to {address} success.",
    )


@click.command("deleteQuota", context_settings=HELP, help=f"Delete a quota {_OWN}.")
@namesrv_option
@target_options(_MASTERS)
@_quota_option
def delete_quota(namesrv: str | None, target: Target, name: str) -> None:
    """Delete a quota at each master."""
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.delete_quota(address, name.strip()),
        done=lambda address: f"delete quota {name.strip()} from {address} success.",
    )


@click.command("getQuota", context_settings=HELP, help=f"Show the quotas of masters {_OWN}.")
@namesrv_option
@target_options(_MASTERS)
@click.option("-q", "--quota", "name", help="Only the quota of this name.")
@json_option
def get_quota(namesrv: str | None, target: Target, name: str | None, as_json: bool) -> None:
    """Show quotas."""

    def show(tables: "dict[str, dict[str, Quota]]") -> None:
        found = {
            address: {one: quota for one, quota in table.items() if name is None or one == name.strip()}
            for address, table in tables.items()
        }
        if name is not None and not any(found.values()):
            raise click.ClickException(f"there is no quota {name.strip()!r}; getQuota without -q lists all")
        print_found(found, quota_lines(found), as_json=as_json)

    ask_each(namesrv, target, lambda admin, address: admin.quotas(address), show=show)


@click.command("getQuotaUsage", context_settings=HELP, help=f"Show the quotas that are used most {_OWN}.")
@namesrv_option
@target_options(_MASTERS)
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Lines to show.")
@json_option
def get_quota_usage(namesrv: str | None, target: Target, count: int, as_json: bool) -> None:
    """Show what is used of quotas."""
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.quota_usage(address),
        show=lambda found: print_found(found, use_lines(found, count), as_json=as_json),
    )
