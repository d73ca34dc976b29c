"""What several `mqadmin` commands share: the pair -b and -c, the topic, the route, and the repetition with -i."""

import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from sprocket.common.errors import SprocketError
from sprocket_cli.client_session import SERVER_ADDRESS, CommandFailed, failure_text, with_admin

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.admin.controller_admin import ControllerAdmin
    from sprocket.client.admin.group_admin import GroupAdmin
    from sprocket.client.admin.message_lookup import MessageLookup

# Stands for the address of a master that is not there (`CommandUtil.NO_MASTER_PLACEHOLDER`).
NO_MASTER: Final = "NO_MASTER"
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

topic_option = click.option("-t", "--topic", required=True, help="Topic name.")
route_option = click.option("-c", "--cluster", help="Cluster or parent topic whose route names the brokers.")
interval_option = click.option(
    "-i", "--interval", "interval_s", type=click.FloatRange(min=0.1), help="Repeat every SECONDS.", metavar="SECONDS"
)


class Target(NamedTuple):
    """The brokers that a command asks: one by its address, or those of a cluster."""

    broker: str | None
    cluster: str | None

    async def addresses(self, admin: "AdminClient", *, masters_only: bool) -> list[str]:
        """Return the address of the broker, or those of the cluster.  Raises AdminError for an unknown cluster."""
        if self.broker is not None:
            return [self.broker]
        return await admin.broker_addresses(self.cluster or "", masters_only=masters_only)


def ask_each(
    namesrv: str | None,
    target: Target,
    ask: "Callable[[AdminClient, str], Awaitable[T]]",
    *,
    masters_only: bool = True,
    done: Callable[[str], str] | None = None,
    show: Callable[[dict[str, T]], None] | None = None,
) -> None:
    """Ask each broker, also after one of them failed; print what `done` says of each success at once.

    Then call `show` with the answers by address, unless all brokers failed.  Raises CommandFailed if one failed.
    RocketMQ goes on in six commands (`BrokerStatusSubCommand`), and stops at the first failure in the others.
    """

    async def session(admin: "AdminClient") -> tuple[dict[str, T], int]:
        addresses = await target.addresses(admin, masters_only=masters_only)
        found = {}
        for address in addresses:
            try:
                found[address] = await ask(admin, address)
            except (SprocketError, CommandFailed) as error:
                if len(addresses) == 1:
                    raise
                text = failure_text(error) if isinstance(error, SprocketError) else error.message
                click.echo(f"{address}: {text}", err=True)
                continue
            if done is not None:
                click.echo(done(address))
        return found, len(addresses)

    found, count = with_admin(namesrv, session)
    if show is not None and (found or not count):
        show(found)
    if len(found) < count:
        raise CommandFailed(f"{count - len(found)} of {count} brokers failed, see above")


def with_groups(namesrv: str | None, ask: "Callable[[GroupAdmin], Awaitable[T]]") -> T:
    """Do as `with_admin`, with a client for consumer and producer groups."""
    from sprocket.client.admin.group_admin import GroupAdmin

    return with_admin(namesrv, lambda admin: ask(GroupAdmin(admin)))


def with_lookup(namesrv: str | None, ask: "Callable[[MessageLookup], Awaitable[T]]") -> T:
    """Do as `with_admin`, with a client that looks up messages."""
    from sprocket.client.admin.message_lookup import MessageLookup

    return with_admin(namesrv, lambda admin: ask(MessageLookup(admin)))


def with_controllers(address: str | None, ask: "Callable[[ControllerAdmin], Awaitable[T]]") -> T:
    """Do as `with_admin`, with a client for controllers."""
    from sprocket.client.admin.controller_admin import ControllerAdmin

    return with_admin(address, lambda admin: ask(ControllerAdmin(admin)))


def target_options(
    cluster_help: str = "Every broker of this cluster.",
    *,
    broker_help: str = "Address of one broker.",
    cluster_flag: str = "--clusterName",
    is_required: bool = True,
) -> Callable[[F], F]:
    """Add -b and -c to a command, which receives them as one `Target` in the argument `target`.

    Both together are wrong usage; neither is wrong usage if `is_required`.
    """

    def add(command: F) -> F:
        @click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, help=broker_help)
        @click.option("-c", cluster_flag, "cluster", help=cluster_help)
        @wraps(command)
        def with_target(*args: Any, broker: str | None, cluster: str | None, **given: Any) -> Any:
            if is_required and (broker is None) == (cluster is None):
                raise click.UsageError("give exactly one of -b and -c")
            return command(*args, target=Target(broker, None if cluster is None else cluster.strip()), **given)

        return cast(F, with_target)

    return add


def repeat(show: Callable[[], None], interval_s: float | None) -> None:
    """Call `show` once; with `interval_s`, again after each such pause until Ctrl-C."""
    show()
    while interval_s is not None:
        time.sleep(interval_s)
        show()
