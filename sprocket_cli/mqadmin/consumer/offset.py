"""`mqadmin` about offsets."""

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import TO_END, GroupAdmin, Rollback
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import ResponseCode
from sprocket_cli.client_session import SERVER_ADDRESS, json_option, print_found
from sprocket_cli.columns import parse_time
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command, topic_option

_CLOCK = SystemClock()
_OFFSET_HEAD = "%-40s  %-40s  %-40s"
_OFFSET = "%-40s  %-40d  %-40d"
_ROLLBACK_HEAD = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
_ROLLBACK = "%-20s  %-20d  %-20d  %-20d  %-20d  %-20d"
_POSITION_HEAD = "%-50s  %-15s  %-15s  %-20s"
_POSITION = "%-50s  %-15s  %-15d  %-20d"

group_option = click.option("-g", "--group", required=True, help="Consumer group.")
force_option = click.option("-f", "--force", type=bool, default=True, help="Also move forward (true|false).")
light_route_option = click.option(
    "-c", "--cluster", help="For a light topic: cluster or parent topic whose route names the brokers."
)


def reset_time(text: str) -> int:
    """Return the milliseconds of ``now``, of a number (-1 is the end), or of ``yyyy-MM-dd#HH:mm:ss:SSS``.

    Raises WrongUsage for any other text.
    """
    text = text.strip()
    if text == "now":
        return _CLOCK.wall_ms()
    if text.startswith("-") and text[1:].isdecimal():
        return int(text)
    return parse_time(text) or 0


async def _reset(
    groups: GroupAdmin, topic: str, group: str, timestamp_ms: int, force: bool, cluster: str | None
) -> dict[MessageQueue, int] | list[Rollback]:
    """Reset the offsets; where that needs an online client and none is, commit the offsets instead."""
    try:
        return await groups.reset_to_time(topic, group, timestamp_ms, force=force, route_topic=cluster)
    except AdminError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
    return await groups.commit_to_time(topic, group, timestamp_ms, force=force, route_topic=cluster)


def offset_lines(offsets: dict[MessageQueue, int]) -> list[str]:
    """Return RocketMQ's columns, one line per queue."""
    rows = [_OFFSET % (queue.broker_name[:32], queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
    return [_OFFSET_HEAD % ("#brokerName", "#queueId", "#offset"), *rows]


def rollback_lines(done: list[Rollback], last: str) -> list[str]:
    """Return RocketMQ's columns, one line per queue; `last` is the name of the last column."""
    names = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", last)
    return [_ROLLBACK_HEAD % names, *(_ROLLBACK % (row.broker_name[:32], *row[1:]) for row in done)]


def _json(done: dict[MessageQueue, int] | list[Rollback]) -> list[dict[str, object]]:
    if isinstance(done, list):
        return [{"brokerName": row.broker_name, "queueId": row.queue_id, "offset": row.reset_offset} for row in done]
    return [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in sorted(done.items())
    ]


@admin_command("resetOffsetByTime")
@group_option
@topic_option
@click.option(
    "-s", "--timestamp", "when", required=True, help="now, milliseconds, -1 (the end), or yyyy-MM-dd#HH:mm:ss:SSS."
)
@force_option
@click.option("-b", "--broker", type=SERVER_ADDRESS, help="Address of a broker; with -q, reset only that queue.")
@click.option("-q", "--queue", "queue_id", type=click.IntRange(0), help="Queue id.")
@click.option("-o", "--offset", type=click.IntRange(0), help="With -b and -q: reset to this offset, not to the time.")
@light_route_option
@json_option
async def reset_offset_by_time(
    admin: AdminClient, group: str, topic: str, when: str, force: bool, broker: str | None, queue_id: int | None,
    offset: int | None, cluster: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Reset the offsets of a group to a time or an offset; clients need no restart."""
    groups, timestamp = GroupAdmin(admin), reset_time(when)
    if broker is not None and queue_id is not None:
        at = await groups.offset_at(broker, topic, queue_id, timestamp) if offset is None else offset
        await groups.reset_queue(broker, group, topic, queue_id, at)
        lines = [
            f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
            f"broker[{broker}], timestamp(string)[{when}], timestamp(long)[{timestamp}]",
            f"reset consumer offset to {at}",
        ]
        print_found([{"broker": broker, "queueId": queue_id, "offset": at}], lines, as_json=as_json)
        return
    done = await _reset(groups, topic, group, timestamp, force, cluster)
    told = f"topic[{topic}], force[{java_form(force)}], timestamp(string)[{when}], timestamp(long)[{timestamp}]"
    if isinstance(done, list):
        head = f"reset consumer offset by specified consumerGroup[{group}], {told}"
        lines = rollback_lines(done, "#resetOffset")
    else:
        head = f"start reset consumer offset by specified, group[{group}], {told}"
        lines = offset_lines(done)
    print_found(_json(done), [head, *lines], as_json=as_json)


@admin_command("skipAccumulatedMessage")
@group_option
@topic_option
@force_option
@light_route_option
@json_option
async def skip_accumulated_message(
    admin: AdminClient, group: str, topic: str, force: bool, cluster: str | None, as_json: bool
) -> None:
    """Set the offsets of a group to the end of its queues: it skips the backlog."""
    done = await _reset(GroupAdmin(admin), topic, group, TO_END, force, cluster)
    lines = rollback_lines(done, "#rollbackOffset") if isinstance(done, list) else offset_lines(done)
    print_found(_json(done), lines, as_json=as_json)


@admin_command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True, help="Group to copy offsets from.")
@click.option("-d", "--destGroup", "target", required=True, help="Group to copy offsets to.")
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-o", "--offline", help="Accepted and ignored, as in RocketMQ.")
async def clone_group_offset(admin: AdminClient, source: str, target: str, topic: str, offline: str | None) -> None:
    """Copy the offsets of a topic from one group to another one."""
    await GroupAdmin(admin).clone_offsets(source, target, topic)
    click.echo(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


@admin_command("getConsumerStatus")
@group_option
@topic_option
@click.option("-i", "--originClientId", "client_id", default="", help="Only this client.")
@json_option
async def get_consumer_status(admin: AdminClient, group: str, topic: str, client_id: str, as_json: bool) -> None:
    """Show the offsets that each client of a group holds.

    RocketMQ has this command in its sources; its mqadmin does not offer it.
    """
    found = await GroupAdmin(admin).positions(topic, group, client_id)
    rows = [
        (client, queue.broker_name, queue.queue_id, at)
        for client, table in sorted(found.items())
        for queue, at in sorted(table.items())
    ]
    document = [dict(zip(("clientId", "brokerName", "queueId", "offset"), row, strict=True)) for row in rows]
    lines = [
        f"get consumer status from client. group={group}, topic={topic}, originClientId={client_id}",
        _POSITION_HEAD % ("#clientId", "#brokerName", "#queueId", "#offset"),
        *(_POSITION % (client[:50], *place) for client, *place in rows),
    ]
    print_found(document, lines, as_json=as_json)
