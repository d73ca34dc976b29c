"""The options -b and -c of commands that ask one broker or those of a cluster."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from sprocket_cli.client_session import SERVER_ADDRESS

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

# Stands for the address of a master that is not there (`CommandUtil.NO_MASTER_PLACEHOLDER`).
NO_MASTER: Final = "NO_MASTER"
F = TypeVar("F", bound=Callable[..., Any])


class Target(NamedTuple):
    """The brokers that a command asks: one by its address, or those of a cluster."""

    broker: str | None
    cluster: str | None

    async def addresses(self, admin: "AdminClient", *, masters_only: bool = True) -> list[str]:
        """Return the address of the broker, or those of the cluster.  Raises AdminError for an unknown cluster."""
        if self.broker is not None:
            return [self.broker]
        return await admin.broker_addresses(self.cluster or "", masters_only=masters_only)

    async def titles(self, admin: "AdminClient") -> dict[str, str]:
        """Return what RocketMQ calls each broker, by address: in a cluster, a master or a slave and its master.

        For a group without a master `NO_MASTER` is the address.
        """
        if self.broker is not None:
            return {self.broker: self.broker}
        found = {}
        for master, slaves in await admin.broker_groups(self.cluster or ""):
            name = master or NO_MASTER
            found[name] = f"Master: {name}"
            found |= {slave: f"My Master: {name}=====Slave: {slave}" for slave in slaves}
        return found


def target_options(
    cluster_help: str = "Every broker of this cluster.", *, broker_help: str = "Address of one broker.",
    cluster_flag: str = "--clusterName", is_required: bool = True,
) -> Callable[[F], F]:  # fmt: skip
    """Add -b and -c to a command, which receives them as one `Target` in the argument `target`.

    Both together are wrong usage; neither is wrong usage if `is_required`.
    """

    def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        # The second of them knows both.
        for name in {"broker", "cluster"} & ctx.params.keys():
            given = (value, ctx.params[name]).count(None)
            if given == 0 or (is_required and given == 2):
                raise click.UsageError(f"give {'exactly' if is_required else 'at most'} one of -b and -c", ctx)
        return value

    def add(command: F) -> F:
        @click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, callback=checked, help=broker_help)
        @click.option("-c", cluster_flag, "cluster", callback=checked, help=cluster_help)
        @wraps(command)
        def with_target(*args: Any, broker: str | None, cluster: str | None, **given: Any) -> Any:
            return command(*args, target=Target(broker, None if cluster is None else cluster.strip()), **given)

        return cast(F, with_target)

    return add
