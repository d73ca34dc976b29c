"""One way to ask several servers: all of them, also after one failed, which the command then names."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import click

from sprocket.common.errors import SprocketError
from sprocket_cli.client_session import CommandFailed, failure_text

T = TypeVar("T")


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, done: Callable[[str], str] | None = None,
    show: Callable[[dict[str, T]], None] | None = None,
) -> dict[str, T]:  # fmt: skip
    """Ask the server at each address; print what `done` says of each success at once, and return all answers.

    `show` is called with the answers by address before a failure ends the command, unless all servers failed.  It may
    raise CommandFailed, such as for something that none of them knows.  Raises CommandFailed if a server failed.
    RocketMQ goes on in six commands (`BrokerStatusSubCommand`), and stops at the first failure in the others.
    """
    asked = list(dict.fromkeys(addresses))
    found: dict[str, T] = {}
    for address in asked:
        try:
            found[address] = await ask(address)
        except (SprocketError, CommandFailed) as error:
            if len(asked) == 1:
                raise
            text = failure_text(error) if isinstance(error, SprocketError) else error.message
            click.echo(text if address in text else f"{address}: {text}", err=True)
            continue
        if done is not None:
            click.echo(done(address))
    if show is not None and (found or not asked):
        try:
            show(found)
        except CommandFailed as error:
            if len(found) == len(asked):
                raise
            click.echo(f"of the {len(found)} that answered: {error.message}", err=True)
    if len(found) < len(asked):
        raise CommandFailed(f"{len(asked) - len(found)} of {len(asked)} servers failed, see above")
    return found
