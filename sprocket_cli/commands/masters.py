"""What commands share that ask every master of a cluster."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from sprocket_cli.client_session import CommandFailed, with_admin

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

T = TypeVar("T")
cluster_option = click.option(
    "--cluster", default="DefaultCluster", show_default=True, help="Ask every master of this cluster."
)


async def at_masters(admin: "AdminClient", cluster: str, ask: "Callable[[str], Awaitable[T]]") -> dict[str, T]:
    """Return the answer of each master, by address.  Raises CommandFailed without a master."""
    addresses = await admin.broker_addresses(cluster, masters_only=True)
    if not addresses:
        raise CommandFailed(f"cluster {cluster} has no master")
    return {address: await ask(address) for address in addresses}


def changed_at_masters(
    namesrv: str | None, cluster: str, change: "Callable[[AdminClient, str], Awaitable[object]]"
) -> str:
    """Change something at each master, and return their addresses as text.  Raises CommandFailed without a master."""

    async def ask(admin: "AdminClient") -> list[str]:
        return list(await at_masters(admin, cluster, lambda address: change(admin, address)))

    return ", ".join(with_admin(namesrv, ask))
