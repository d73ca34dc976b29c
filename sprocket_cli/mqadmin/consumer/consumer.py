"""`mqadmin` about consumers."""

from collections.abc import Mapping
from typing import NamedTuple

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.remoting.bodies.client import ConsumerConnection, MessageQueue
from sprocket.remoting.bodies.pop import RequestMode, SetMessageRequestModeRequestBody
from sprocket.remoting.bodies.stats import ConsumeStats
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from sprocket.remoting.version_names import version_text
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import json_option, print_found
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.options import admin_command, route_option
from sprocket_cli.target import Target, target_options

_QUEUE_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s"
_QUEUE = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s"
_CLIENT_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s"
_CLIENT = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s"
_GROUP_HEAD = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_GROUP = "%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d"
_ACTIVELY, _PASSIVELY = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY"


class QueueProgress(NamedTuple):
    """Progress of a group in one queue; `last_timestamp` in ms, 0 if there is none."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    inflight: int
    last_timestamp: int


class GroupProgress(NamedTuple):
    """Progress of one group over all its queues."""

    group: str
    clients: int
    version: str
    type: str
    model: str
    tps: int
    diff_total: int


def queue_progress(stats: ConsumeStats[MessageQueue]) -> list[QueueProgress]:
    """Return the queues of `stats`, ordered by topic, broker and queue id."""
    return [
        QueueProgress(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offsets.broker_offset,
            offsets.consumer_offset,
            offsets.broker_offset - offsets.consumer_offset,
            offsets.pull_offset - offsets.consumer_offset,
            offsets.last_timestamp,
        )
        for queue, offsets in sorted(stats.offset_table.items())
    ]


@admin_command("consumerProgress")
@click.option("-g", "--groupName", "group", help="Consumer group; without it, one line for each group.")
@click.option("-t", "--topicName", "topic", help="Only this topic.")
@click.option("-s", "--showClientIP", "show_client", type=bool, default=False, help="Show client IPs (true|false).")
@route_option
@json_option
async def consumer_progress(
    admin: AdminClient, group: str | None, topic: str | None, show_client: bool, cluster: str | None, as_json: bool
) -> None:
    """Show the offsets, lag and rate of a group, or of all groups."""
    if group is None:
        groups = await group_progress(admin)
        lines = [_GROUP_HEAD % ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")]
        lines += [_GROUP % (line.group[:64], *line[1:]) for line in groups]
        print_found([line._asdict() for line in groups], lines, as_json=as_json)
        return
    stats = await admin.consume_stats(group, topic, cluster)
    rows = queue_progress(stats)
    holders = await _holders(admin, group) if show_client and not as_json else None
    lines = progress_lines(rows, stats.consume_tps, holders)
    print_found([row._asdict() for row in rows], lines, as_json=as_json)


async def _holders(admin: AdminClient, group: str) -> dict[tuple[str, str, int], str]:
    """Return the client IP by topic, broker and queue id; empty if the group is offline."""
    try:
        holders = await admin.queue_holders(group)
    except AdminError:
        return {}
    return {(queue.topic, queue.broker_name, queue.queue_id): ip for queue, ip in holders.items()}


def progress_lines(
    rows: list[QueueProgress], consume_tps: float, holders: Mapping[tuple[str, str, int], str] | None = None
) -> list[str]:
    """Return RocketMQ's columns, one line per queue, then the totals.  `holders` adds a column for the client's IP."""
    names = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    if holders is not None:
        lines = [_CLIENT_HEAD % (*names, "#Client IP", "#Diff", "#Inflight", "#LastTime")]
    else:
        lines = [_QUEUE_HEAD % (*names, "#Diff", "#Inflight", "#LastTime")]
    for row in rows:
        last = seconds_text(row.last_timestamp) if row.last_timestamp else "N/A"
        head = (row.topic[:64], row.broker_name[:32], *row[2:5])
        if holders is not None:
            lines.append(_CLIENT % (*head, holders.get(row[:3], "N/A"), row.diff, row.inflight, last))
        else:
            lines.append(_QUEUE % (*head, row.diff, row.inflight, last))
    lines += ["", f"Consume TPS: {consume_tps:.2f}", f"Consume Diff Total: {sum(row.diff for row in rows)}"]
    return [*lines, f"Consume Inflight Total: {sum(row.inflight for row in rows)}"]


async def group_progress(admin: AdminClient) -> list[GroupProgress]:
    """Return the progress of every group that has a retry topic."""
    topics = await admin.topic_list()
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)]
    return [await _one_group(admin, group) for group in groups]


async def _one_group(admin: AdminClient, group: str) -> GroupProgress:
    try:
        stats = await admin.consume_stats(group)
    except AdminError:
        stats = ConsumeStats[MessageQueue]()
    try:
        online = await admin.consumer_connection(group)
    except AdminError:
        online = ConsumerConnection()
    count = len(online.connection_set)
    kind = ("PULL" if online.consume_type == _ACTIVELY else "PUSH") if count else ""
    model = (online.message_model or "") if count and online.consume_type == _PASSIVELY else ""
    version = version_text(min(client.version for client in online.connection_set)) if count else "OFFLINE"
    diff = sum(offsets.broker_offset - offsets.consumer_offset for offsets in stats.offset_table.values())
    return GroupProgress(group, count, version, kind, model, int(stats.consume_tps), diff)


@admin_command("setConsumeMode")
@target_options("Set it on every master of this cluster.", broker_help="Set it on this broker.")
@click.option("-t", "--topicName", "topic", required=True, help="Topic name.")
@click.option("-g", "--groupName", "group", required=True, help="Consumer group.")
@click.option("-m", "--mode", type=click.Choice(["PULL", "POP"]), required=True, help="How the group receives it.")
@click.option(
    "-q", "--popShareQueueNum", "share", type=int, default=0,
    help="A client also pops from the queues of this many others.",
)  # fmt: skip
async def set_consume_mode(
    admin: AdminClient, target: Target, topic: str, group: str, mode: RequestMode, share: int
) -> None:
    """Set whether a group receives a topic by pull or by pop."""
    body = SetMessageRequestModeRequestBody(topic, group, mode, share)
    text = f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]"
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.set_request_mode(address, body),
        done=lambda address: f"set consume mode to {address} success.",
        show=lambda _: click.echo(text),
    )
