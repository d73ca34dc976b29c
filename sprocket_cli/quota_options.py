"""What `sprocket quota` and the commands of `mqadmin` about quotas share: options for limits, and what is printed."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import Adder, option_set
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from sprocket.remoting.bodies.quota import Quota, QuotaUse

NAME_HELP: Final = (
    "NAME is account:X, topic:X, group:X, address:X, namespace:X or tenant:X; with * at the end of X it is for each "
    "name that begins so."
)
_AMOUNTS: Final = {
    "messages_in": "Messages sent per second.",
    "bytes_in": "Bytes sent per second.",
    "messages_out": "Messages delivered per second.",
    "bytes_out": "Bytes delivered per second.",
    "requests": "Sends, pulls and pops per second.",
    "storage_bytes": "Bytes that a topic stores.",
    "backlog_messages": "Messages that a group has yet to read.",
}
_FLAGS: Final = {
    "drops_oldest": "A full topic drops its oldest messages and takes new ones.",
    "is_soft": "Refuse nothing, only report.",
    "is_cluster_wide": "Divide the limits among the masters.",
}


def limit_options(flag_of: Callable[[str], str]) -> Adder:
    """Add the options of a quota to a command, which gets fields of `Quota`; `flag_of` makes flags of their names."""
    amounts = (
        click.option(flag_of(name), name, type=click.IntRange(min=0), default=0, help=text)
        for name, text in _AMOUNTS.items()
    )
    flags = (
        click.option(flag_of(name.removeprefix("is_")), name, is_flag=True, help=text) for name, text in _FLAGS.items()
    )
    at_once, burst = click.IntRange(1, 60_000), "burst_millis"
    text = "What this time brings may come at once."
    last = click.option(flag_of(burst), burst, type=at_once, default=1000, show_default=True, help=text)
    return option_set(*amounts, *flags, last)


def quota_lines(found: "Mapping[str, Mapping[str, Quota]]") -> list[str]:
    """Return the quotas of masters, by address: a line for each quota, and for each master that differs."""
    by_quota: dict[Quota, list[str]] = {}
    for address, table in found.items():
        for one in table.values():
            by_quota.setdefault(one, []).append(address)
    rows: list[tuple[object, ...]] = []
    for one, addresses in sorted(by_quota.items(), key=lambda item: item[0].name):
        on = "all" if len(addresses) == len(found) else ",".join(addresses)
        rows.append((one.name, one.limits_text(), "soft" if one.is_soft else "hard", on))
    return fitted(("quota", "limits", "mode", "masters"), rows)


def use_lines(found: "Mapping[str, list[QuotaUse]]", count: int) -> list[str]:
    """Return the limits that are used most at masters, by address."""
    uses = sorted(
        ((address, use) for address, of_broker in found.items() for use in of_broker), key=lambda one: -one[1].part
    )
    rows: list[tuple[object, ...]] = [
        (address, use.quota, use.resource, use.kind, f"{use.limit:.10g}", f"{use.rate:.0f}", f"{use.asked:.0f}",
         f"{use.part:.0%}", use.exceeded_total)
        for address, use in uses[:count]
    ]  # fmt: skip
    return fitted(("master", "quota", "resource", "kind", "limit", "used", "asked", "asked%", "exceeded"), rows)
