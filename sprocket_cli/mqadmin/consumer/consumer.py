"""`mqadmin` about consumers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from sprocket.remoting.version_names import version_text
from sprocket_cli.client_session import admin_command, json_option, print_json, with_admin
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.options import Target, ask_each, route_option, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.remoting.bodies.client import MessageQueue
    from sprocket.remoting.bodies.pop import RequestMode
    from sprocket.remoting.bodies.stats import ConsumeStats

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


def queue_progress(stats: "ConsumeStats[MessageQueue]") -> list[QueueProgress]:
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
def consumer_progress(
    namesrv: str | None, group: str | None, topic: str | None, show_client: bool, cluster: str | None, as_json: bool
) -> None:
    """Show the offsets, lag and rate of a group, or of all groups."""
    if group is None:
        groups = with_admin(namesrv, group_progress)
        if as_json:
            print_json([line._asdict() for line in groups])
            return
        click.echo(_GROUP_HEAD % ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
        for line in groups:
            click.echo(_GROUP % (line.group[:64], *line[1:]))
        return
    name = group.strip()
    stats = with_admin(namesrv, lambda admin: admin.consume_stats(name, topic, cluster))
    rows = queue_progress(stats)
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    holders = with_admin(namesrv, lambda admin: _holders(admin, name)) if show_client else None
    for text in progress_lines(rows, stats.consume_tps, holders):
        click.echo(text)


async def _holders(admin: "AdminClient", group: str) -> dict[tuple[str, str, int], str]:
    """Return the client IP by topic, broker and queue id; empty if the group is offline."""
    from sprocket.client.admin.admin_client import AdminError

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


async def group_progress(admin: "AdminClient") -> list[GroupProgress]:
    """Return the progress of every group that has a retry topic."""
    from sprocket.remoting.message.topic_names import RETRY_PREFIX

    topics = await admin.topic_list()
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)]
    return [await _one_group(admin, group) for group in groups]


async def _one_group(admin: "AdminClient", group: str) -> GroupProgress:
    from sprocket.client.admin.admin_client import AdminError
    from sprocket.remoting.bodies.client import ConsumerConnection, MessageQueue
    from sprocket.remoting.bodies.stats import ConsumeStats

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
    "-q",
    "--popShareQueueNum",
    "share",
    type=int,
    default=0,
    help="A client also pops from the queues of this many others.",
)
def set_consume_mode(
    namesrv: str | None,
    target: Target,
    topic: str,
    group: str,
    mode: "RequestMode",
    share: int,
) -> None:
    """Set whether a group receives a topic by pull or by pop."""
    from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody

    body = SetMessageRequestModeRequestBody(topic.strip(), group.strip(), mode, share)
    text = f"topic[{body.topic}] group[{body.consumer_group}] consume mode[{mode}] popShareQueueNum[{share}]"
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.set_request_mode(address, body),
        done=lambda address: f"set consume mode to {address} success.",
        show=lambda _: click.echo(text),
    )
