"""`mqadmin` about connected clients."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.client import ConsumerConnection, ProducerTableInfo
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo
from sprocket.remoting.version_names import version_text
from sprocket_cli.client_session import SERVER_ADDRESS, json_option, print_found
from sprocket_cli.mqadmin.consumer.running_info_text import diagnosis, running_info_text
from sprocket_cli.mqadmin.options import admin_command

_CLOCK: Final = SystemClock()
_CLIENT: Final = "%-36s %-22s %-10s %s"
_TOPIC: Final = "%-20s %s"
_PRODUCER: Final = "%04d  %-32s %-22s %-8s %s"
_STATUS: Final = "%-10s %-40s %-20s %s"

broker_option = click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, help="Ask this broker.")


@admin_command("consumerConnection")
@click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
@broker_option
@json_option
async def consumer_connection(admin: AdminClient, group: str, broker: str | None, as_json: bool) -> None:
    """Show the connected consumers of a group, their versions and subscriptions."""
    found = await GroupAdmin(admin).consumers(group, broker)
    print_found(found, connection_lines(found), as_json=as_json)


def connection_lines(found: ConsumerConnection) -> list[str]:
    """Return RocketMQ's lines."""
    lines = [_CLIENT % ("#ClientId", "#ClientAddr", "#Language", "#Version")]
    lines += [
        _CLIENT % (client.client_id, client.client_addr, client.language, version_text(client.version))
        for client in found.connection_set
    ]
    lines += ["", "Below is subscription:", _TOPIC % ("#Topic", "#SubExpression")]
    lines += [_TOPIC % (each.topic, each.sub_string) for each in found.subscription_table.values()]
    lines += ["", f"ConsumeType: {found.consume_type}", f"MessageModel: {found.message_model}"]
    return [*lines, f"ConsumeFromWhere: {found.consume_from_where}"]


@admin_command("producerConnection")
@click.option("-g", "--producerGroup", "group", required=True, help="Producer group.")
@click.option("-t", "--topic", required=True, help="A topic of the group: one of its brokers is asked.")
@json_option
async def producer_connection(admin: AdminClient, group: str, topic: str, as_json: bool) -> None:
    """Show the connected producers of a group and their versions."""
    found = await GroupAdmin(admin).producers(group, topic)
    lines = (
        _PRODUCER % (number, client.client_id, client.client_addr, client.language, version_text(client.version))
        for number, client in enumerate(found.connection_set, 1)
    )
    print_found(found, lines, as_json=as_json)


@admin_command("producer")
@click.option("-b", "--broker", required=True, type=SERVER_ADDRESS, help="Address of the broker.")
@json_option
async def producer(admin: AdminClient, broker: str, as_json: bool) -> None:
    """Show all producers that are connected to a broker."""
    found = await GroupAdmin(admin).all_producers(broker)
    print_found(found, _producer_lines(found), as_json=as_json)


def _producer_lines(found: ProducerTableInfo) -> Iterator[str]:
    for group, members in sorted(found.data.items()):
        if not members:
            yield f"producer group ({group}) instances are empty"
        for each in members:
            yield (
                f"producer group ({group}) instance : clientId={each.client_id},remoteIP={each.remote_ip}, "
                f"language={each.language}, version={each.version}, lastUpdateTimestamp={each.last_update_timestamp}"
            )


@admin_command("consumerStatus")
@click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
@click.option("-i", "--clientId", "client_id", help="Print the report of this client.")
@broker_option
@click.option("-s", "--jstack", is_flag=True, help="Include the stacks of the consumer's threads.")
async def consumer_status(
    admin: AdminClient, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> None:
    """Show what the consumers of a group report about themselves.

    Without -i, each client's report is written to a file of its own, in a folder named after the time.
    """
    if client_id is not None:
        info = await admin.running_info(group, client_id, jstack=jstack, broker=broker)
        click.echo(running_info_text(info), nl=False)
        return
    connected = (await GroupAdmin(admin).consumers(group, broker)).connection_set
    reports: dict[str, ConsumerRunningInfo[str]] = {}
    for client in connected:
        try:
            reports[client.client_id] = await admin.running_info(group, client.client_id, jstack=jstack, broker=broker)
        except AdminError as error:
            click.echo(str(error), err=True)
    _write({each.client_id: version_text(each.version) for each in connected}, reports)


def _write(versions: Mapping[str, str], reports: Mapping[str, ConsumerRunningInfo[str]]) -> None:
    """Write each report to a file, and print a line about it; then a diagnosis of all."""
    now_ms = _CLOCK.wall_ms()
    folder = Path(str(now_ms))
    click.echo(_STATUS % ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    for number, (each, info) in enumerate(reports.items(), 1):
        folder.mkdir(exist_ok=True)
        # The client chose its id: it must not lead out of the folder.
        path = folder / each.replace("/", "_")
        path.write_text(running_info_text(info), encoding="utf-8")
        click.echo(_STATUS % (number, each, versions[each], path))
    if reports:
        click.echo(diagnosis(reports, now_ms))
