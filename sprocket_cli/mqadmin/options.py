"""How a command of `mqadmin` is declared, and what several of them share: the topic, the repetition with -i."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import click

from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket.client.connection.wakeup import pause
from sprocket_cli.client_session import HELP, admin_session, with_admin

# What a command does: it gets a client, and the values of the options by name.
Work = Callable[..., Awaitable[None]]

topic_option = click.option("-t", "--topic", required=True, help="Topic name.")
route_option = click.option("-c", "--cluster", help="Cluster or parent topic whose route names the brokers.")
interval_option = click.option(
    "-i", "--interval", "interval_s", type=click.FloatRange(min=0.1), help="Repeat every SECONDS.", metavar="SECONDS"
)
_ignored_namesrv_option = click.option(
    "-n", "--namesrvAddr", expose_value=False, metavar="HOST:PORT;...",
    help="Accepted and ignored: controllers are asked themselves.",
)  # fmt: skip


def admin_command(name: str, help_: str | None = None) -> Callable[[Work], click.Command]:
    """Declare a command, whose function gets a client of the name servers of -n.

    Texts lose the blanks around them, as in RocketMQ's mqadmin.
    """

    def declare(work: Work) -> click.Command:
        return click.command(name, context_settings=HELP, help=help_)(admin_session(_without_blanks(work)))

    return declare


def controller_command(name: str) -> Callable[[Work], click.Command]:
    """Declare a command, whose function gets a client of the controllers, and their addresses as `controller`."""

    def declare(work: Work) -> click.Command:
        stripped = _without_blanks(work)

        @click.command(name, context_settings=HELP)
        @_ignored_namesrv_option
        @wraps(stripped)
        def command(controller: str, **given: Any) -> None:
            with_admin(controller, lambda admin: stripped(ControllerAdmin(admin), controller=controller, **given))

        return command

    return declare


def _without_blanks(work: Work) -> Work:
    """Return `work` with arguments that have no blanks around them."""

    @wraps(work)
    async def stripped(client: object, /, **given: Any) -> None:
        await work(client, **{name: one.strip() if isinstance(one, str) else one for name, one in given.items()})

    return stripped


async def repeat(show: Callable[[], Awaitable[None]], interval_s: float | None) -> None:
    """Call `show` once; with `interval_s`, again after each such pause until Ctrl-C."""
    await show()
    while interval_s is not None:
        await pause(interval_s)
        await show()
