"""`mqadmin` about the configurations of brokers and name servers."""

from collections.abc import Iterable, Iterator, Mapping

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import json_option, print_found
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.target import NO_MASTER, Target, target_options

key_option = click.option("-k", "--key", required=True, help="Key of the configuration.")
value_option = click.option("-v", "--value", required=True, help="New value.")


@admin_command("updateBrokerConfig")
@target_options("Every master of this cluster.")
@click.option("-a", "--updateAllBroker", "with_slaves", type=bool, default=False, help="With -c: slaves, too.")
@key_option
@value_option
async def update_broker_config(admin: AdminClient, target: Target, with_slaves: bool, key: str, value: str) -> None:
    """Change a key of a broker's configuration while it runs."""

    async def update(address: str) -> None:
        note = await admin.update_broker_config(address, {key: value})
        click.echo(f"update broker config success, {address}")
        if note:
            click.echo(f"{address}: {note}", err=True)

    await ask_each(await target.addresses(admin, masters_only=not with_slaves), update)


@admin_command("getBrokerConfig")
@target_options()
@json_option
async def broker_config(admin: AdminClient, target: Target, as_json: bool) -> None:
    """Show the configuration of a broker."""
    titles = await target.titles(admin)

    def lines(found: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        for address, title in titles.items():
            if address in found or address == NO_MASTER:
                yield from config_lines({title: found.get(address, {})})
            if address in found:
                yield ""

    await ask_each(
        (address for address in titles if address != NO_MASTER),
        admin.broker_config,
        show=lambda found: print_found(found, lines(found), as_json=as_json),
    )


def config_lines(tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield RocketMQ's lines: the title of each configuration, then its entries."""
    for title, table in tables.items():
        yield f"============{title}============"
        for key, value in sorted(table.items()):
            yield f"{key:<50}=  {value}"


def show_configs(found: Mapping[str, Mapping[str, str]], as_json: bool) -> None:
    """Print configurations by address."""
    print_found(found, config_lines(found), as_json=as_json)


@admin_command("getNamesrvConfig")
@json_option
async def namesrv_config(admin: AdminClient, as_json: bool) -> None:
    """Show the configuration of each name server."""
    await ask_each(admin.name_servers, admin.name_server_config, show=lambda found: show_configs(found, as_json))


@admin_command("updateNamesrvConfig")
@key_option
@value_option
async def update_namesrv_config(admin: AdminClient, key: str, value: str) -> None:
    """Change a key of all name servers' configurations while they run."""

    def show(notes: Mapping[str, str | None]) -> None:
        show_change("name server", notes, key, value)
        for address, note in notes.items():
            if note:
                click.echo(f"{address}: {note}", err=True)

    await ask_each(
        admin.name_servers, lambda address: admin.update_name_server_config(address, {key: value}), show=show
    )


def show_change(servers: str, changed: Iterable[str], key: str, value: str) -> None:
    """Print RocketMQ's lines about a change of a configuration at the addresses `changed`."""
    click.echo(f"update {servers} config success![{', '.join(changed)}]")
    click.echo(f"{key} : {value}")
