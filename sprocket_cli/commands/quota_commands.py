"""`sprocket quota`: set, list and delete quotas, and show what is used of them."""

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from sprocket_cli.client_session import HELP, json_option, namesrv_option, print_json, with_admin
from sprocket_cli.columns import fitted
from sprocket_cli.commands.masters import at_masters, changed_at_masters, cluster_option

if TYPE_CHECKING:
    from sprocket.remoting.bodies.quota import Quota, QuotaUse

_NO_LIMITS: Final = ("name", "isSoft", "isClusterWide", "dropsOldest")
_AMOUNT: Final = click.IntRange(min=0)


@click.group(context_settings=HELP)
def quota() -> None:
    """Set, list and delete quotas, and show what is used of them."""


@quota.command("set")
@click.argument("name")
@click.option("--messages-in", type=_AMOUNT, default=0, help="Messages sent per second.")
@click.option("--bytes-in", type=_AMOUNT, default=0, help="Bytes sent per second.")
@click.option("--messages-out", type=_AMOUNT, default=0, help="Messages delivered per second.")
@click.option("--bytes-out", type=_AMOUNT, default=0, help="Bytes delivered per second.")
@click.option("--requests", type=_AMOUNT, default=0, help="Sends, pulls and pops per second.")
@click.option("--storage-bytes", type=_AMOUNT, default=0, help="Bytes that a topic stores.")
@click.option("--drops-oldest", is_flag=True, help="A full topic drops its oldest messages and takes new ones.")
@click.option("--backlog-messages", type=_AMOUNT, default=0, help="Messages that a group has yet to read.")
@click.option("--burst-millis", type=click.IntRange(1, 60_000), default=1000, show_default=True,
              help="What this time brings may come at once.")  # fmt: skip
@click.option("--soft", "is_soft", is_flag=True, help="Refuse nothing, only report.")
@click.option("--cluster-wide", "is_cluster_wide", is_flag=True, help="Divide the limits among the masters.")
@cluster_option
@namesrv_option
def set_quota(name: str, cluster: str, namesrv: str | None, **limits: Any) -> None:
    """Set quota NAME, in place of the one that it had.

    NAME is account:X, topic:X, group:X, address:X, namespace:X or tenant:X; with * at the end of X it is for each name
    that begins so.
    """
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
    if as_json:
        print_json({address: msgspec.to_builtins(table) for address, table in found.items()})
        return
    by_quota: dict[Quota, list[str]] = {}
    for address, table in found.items():
        for one in table.values():
            by_quota.setdefault(one, []).append(address)
    rows: list[tuple[object, ...]] = []
    for one, addresses in sorted(by_quota.items(), key=lambda item: item[0].name):
        on = "all" if len(addresses) == len(found) else ",".join(addresses)
        rows.append((one.name, _limits(one), "soft" if one.is_soft else "hard", on))
    for line in fitted(("quota", "limits", "mode", "masters"), rows):
        click.echo(line)


def _limits(one: "Quota") -> str:
    """Return the limits of a quota as text."""
    fields = msgspec.to_builtins(one)
    shown = [
        f"{name}={value}" for name, value in fields.items()
        if value and name not in _NO_LIMITS and (name, value) != ("burstMillis", 1000)
    ]  # fmt: skip
    flags = [text for text, is_on in (("dropsOldest", one.drops_oldest), ("clusterWide", one.is_cluster_wide)) if is_on]
    return " ".join([*shown, *flags])


@quota.command("top")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Lines to show.")
@cluster_option
@namesrv_option
@json_option
def top(count: int, cluster: str, namesrv: str | None, as_json: bool) -> None:
    """Show the quotas that are used most, at each master."""
    found = with_admin(namesrv, lambda admin: at_masters(admin, cluster, admin.quota_usage))
    if as_json:
        print_json({address: msgspec.to_builtins(uses) for address, uses in found.items()})
        return
    uses = sorted(
        ((address, use) for address, of_broker in found.items() for use in of_broker), key=lambda one: -_part(one[1])
    )
    rows: list[tuple[object, ...]] = [
        (address, use.quota, use.resource, use.kind, f"{use.limit:.10g}", f"{use.rate:.0f}", f"{use.asked:.0f}",
         f"{_part(use):.0%}", use.exceeded_total)
        for address, use in uses[:count]
    ]  # fmt: skip
    head = ("master", "quota", "resource", "kind", "limit", "used", "asked", "asked%", "exceeded")
    for line in fitted(head, rows):
        click.echo(line)


def _part(use: "QuotaUse") -> float:
    """Return what part of a limit is asked for."""
    return use.asked / use.limit if use.limit else 0.0
