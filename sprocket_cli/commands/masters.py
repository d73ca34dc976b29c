"""What commands share that ask every master of a cluster."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import CommandFailed

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

T = TypeVar("T")
cluster_option = click.option(
    "--cluster", default="DefaultCluster", show_default=True, help="Ask every master of this cluster."
)


async def master_addresses(admin: "AdminClient", cluster: str) -> list[str]:
    """Return the addresses of the masters of `cluster`.  Raises CommandFailed if there is none."""
    addresses = await admin.broker_addresses(cluster, masters_only=True)
    if not addresses:
        raise CommandFailed(f"cluster {cluster} has no master")
    return addresses


async def at_masters(
    admin: "AdminClient", cluster: str, ask: Callable[[str], Awaitable[T]], show: Callable[[dict[str, T]], None]
) -> None:
    """Ask each master, and `show` the answers by address, as `ask_each`.  Raises CommandFailed without a master."""
    await ask_each(await master_addresses(admin, cluster), ask, show=show)


async def change_at_masters(
    admin: "AdminClient", cluster: str, change: Callable[[str], Awaitable[object]], done: str
) -> None:
    """Change something at each master; print `done` and their addresses.  Raises CommandFailed without a master."""
    await at_masters(admin, cluster, change, lambda found: click.echo(f"{done} at {', '.join(found)}"))
