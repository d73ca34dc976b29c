"""`sprocket broker`: run a broker; with `drain` or `join`, let one leave a cluster or take its share of it."""

from copy import copy
from typing import TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import HELP, CommandFailed, admin_session

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.admin.broker_drain import BrokerDrain, Site

_SETTLE_S: Final = 30.0  # pollNameServerInterval of clients
_EXACT_HELP: Final = "Let offsets follow without a gap: while a queue moves, sends to it wait for a moment."


class _Broker(click.Group):
    """Group that is the command `mqbroker`, unless its first argument is the name of a subcommand."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Return the context of the group for a subcommand, else that of the server."""
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        from sprocket_cli.server.mqbroker import main

        server = copy(main)
        server.epilog = (
            "With drain or join as first word: see sprocket broker drain --help, sprocket broker join --help."
        )
        return server.make_context(info_name, args, parent, **extra)


@click.group(cls=_Broker, context_settings=HELP)
def broker() -> None:
    """Run a broker, which stores messages and delivers them to consumers; or drain or join one."""


@broker.command("drain")
@click.argument("name")
@click.option("--exact-offsets", "exact", is_flag=True, help=_EXACT_HELP)
@click.option("--skip-group", "skipped", multiple=True, metavar="GROUP", help="Do not wait for this group; repeatable.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), help="Seconds to wait for consumers.  [default: any]")
@click.option(
    "--settle", "settle_s", type=click.FloatRange(0), default=_SETTLE_S, show_default=True,
    help="Seconds to wait at least, so that producers have the new route.",
)  # fmt: skip
@click.option(
    "--forget", is_flag=True, help="At the end, remove its queues, whose messages are read, from static topics."
)
@admin_session
async def drain(
    admin: "AdminClient", name: str, exact: bool, skipped: tuple[str, ...], timeout_s: float | None, settle_s: float,
    forget: bool,
) -> None:  # fmt: skip
    """Prepare broker NAME for its stop: no message is sent to it any more, and what it has is read.

    Its queues of static topics and its schedules move to the other brokers of the cluster. Its other topics lose their
    write permission.
    Then the command waits until every group has read what the broker has. If it stops anywhere, repeat it.
    """
    drained, site = await _drain_of(admin, name)
    await drained.move_away(site, exact=exact)
    if await drained.set_writable(site, is_writable=False):
        click.echo(f"{name}: brokerPermission is 4, producers send to other brokers")
    await drained.move_schedules(site)
    # A static topic may have been created, or moved here, until now.
    await drained.move_away(site, exact=exact)
    left = await drained.until_read(site, skipped_groups=skipped, timeout_s=timeout_s, settle_s=settle_s)
    if not left.is_nothing:
        raise CommandFailed(f"broker {name} must not be stopped yet: {left.text()}; repeat the command to go on")
    if forget:
        await drained.forget(site)
    click.echo(_verdict(name, is_forgotten=forget))


def _verdict(name: str, *, is_forgotten: bool) -> str:
    if is_forgotten:
        return f"Broker {name} is drained and may be stopped."
    return (
        f"Broker {name} is drained: every group has read what it has. Older messages of static topics are still read "
        f"from it. Stop it when nobody needs them; before that, repeat the command with --forget."
    )


@broker.command("join")
@click.argument("name")
@click.option("-t", "--topic", "topics", multiple=True, help="Only this static topic; repeatable.  [default: all]")
@click.option("--exact-offsets", "exact", is_flag=True, help=_EXACT_HELP)
@admin_session
async def join(admin: "AdminClient", name: str, topics: tuple[str, ...], exact: bool) -> None:
    """Let broker NAME take its share: an equal part of the queues of each static topic of its cluster.

    A broker that was drained gets its write permission back. If the command stops anywhere, repeat it.
    """
    drained, site = await _drain_of(admin, name)
    if await drained.set_writable(site, is_writable=True):
        click.echo(f"{name}: brokerPermission is 6, producers may send to it")
    count = await drained.take_share(site, exact=exact, topics=topics)
    click.echo(f"Broker {name} has its share: {count} queues moved to it.")


async def _drain_of(admin: "AdminClient", name: str) -> "tuple[BrokerDrain, Site]":
    from sprocket.client.admin.broker_drain import BrokerDrain
    from sprocket.client.admin.static_topics import StaticTopics

    drained = BrokerDrain(admin, StaticTopics.of(admin), click.echo)
    return drained, await drained.site(name)
