"""`mqadmin` about the configurations of brokers and name servers."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import admin_command, json_option, name_servers, print_found, with_admin
from sprocket_cli.mqadmin.options import NO_MASTER, Target, ask_each, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

key_option = click.option("-k", "--key", required=True, help="Key of the configuration.")
value_option = click.option("-v", "--value", required=True, help="New value.")


@admin_command("updateBrokerConfig")
@target_options("Every master of this cluster.")
@click.option("-a", "--updateAllBroker", "with_slaves", type=bool, default=False, help="With -c: slaves, too.")
@key_option
@value_option
def update_broker_config(namesrv: str | None, target: Target, with_slaves: bool, key: str, value: str) -> None:
    """Change a key of a broker's configuration while it runs."""
    key, value = key.strip(), value.strip()

    async def update(admin: "AdminClient", address: str) -> None:
        note = await admin.update_broker_config(address, {key: value})
        click.echo(f"update broker config success, {address}")
        if note:
            click.echo(f"{address}: {note}", err=True)

    ask_each(namesrv, target, update, masters_only=not with_slaves)


@admin_command("getBrokerConfig")
@target_options()
@json_option
def broker_config(namesrv: str | None, target: Target, as_json: bool) -> None:
    """Show the configuration of a broker."""
    found = with_admin(namesrv, lambda admin: _broker_configs(admin, target))
    tables = {address: table for address, _, table in found if table is not None}
    print_found(tables, _broker_lines(found), as_json=as_json)


def _broker_lines(found: list[tuple[str, str, dict[str, str] | None]]) -> Iterator[str]:
    for _, head, table in found:
        yield from config_lines({head: table or {}})
        if table is not None:
            yield ""


async def _broker_configs(admin: "AdminClient", target: Target) -> list[tuple[str, str, dict[str, str] | None]]:
    """Return address, title and configuration of each broker; no configuration for a master that is not there."""

    if target.broker is not None:
        return [(target.broker, target.broker, await admin.broker_config(target.broker))]
    found: list[tuple[str, str, dict[str, str] | None]] = []
    for master, slaves in await admin.broker_groups(target.cluster or ""):
        name = master or NO_MASTER
        found.append((name, f"Master: {name}", await admin.broker_config(master) if master else None))
        found += [
            (slave, f"My Master: {name}=====Slave: {slave}", await admin.broker_config(slave)) for slave in slaves
        ]
    return found


def config_lines(tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield RocketMQ's lines: the title of each configuration, then its entries."""
    for title, table in tables.items():
        yield f"============{title}============"
        for key, value in sorted(table.items()):
            yield f"{key:<50}=  {value}"


@admin_command("getNamesrvConfig")
@json_option
def namesrv_config(namesrv: str | None, as_json: bool) -> None:
    """Show the configuration of each name server."""
    found = with_admin(namesrv, lambda admin: admin.name_server_configs())
    print_found(found, config_lines(found), as_json=as_json)


@admin_command("updateNamesrvConfig")
@key_option
@value_option
def update_namesrv_config(namesrv: str | None, key: str, value: str) -> None:
    """Change a key of all name servers' configurations while they run."""
    key, value = key.strip(), value.strip()
    notes = with_admin(namesrv, lambda admin: admin.update_name_server_configs({key: value}))
    click.echo(f"update name server config success![{', '.join(name_servers(namesrv))}]")
    click.echo(f"{key} : {value}")
    for address, note in notes.items():
        if note:
            click.echo(f"{address}: {note}", err=True)
