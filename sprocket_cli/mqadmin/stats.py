"""`mqadmin` about figures of topics, groups and queues."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.remoting.bodies.client import by_queue
from sprocket.remoting.bodies.consumption import ConsumeStatsList, QueryConsumeQueueResponseBody
from sprocket.remoting.bodies.stats import BrokerStatsData
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX
from sprocket_cli.client_session import SERVER_ADDRESS, json_option, print_found
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command, topic_option

_ALL_HEAD: Final = "%-64s  %-64s %12s %11s %11s %14s %14s"
_ALL: Final = "%-64s  %-64s %12d %11.2f %11.2f %14d %14d"
_ALL_NO_GROUP: Final = "%-64s  %-64s %12d %11.2f %11s %14d %14s"
_STATS_HEAD: Final = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
_STATS: Final = "%-64s  %-64s  %-32s  %-4d  %-20d  %-20d  %-20d  %s"
_RULE: Final = "=" * 38


class TopicLine(NamedTuple):
    """Figures of messages into a topic and out to one group; `group` is None if no group consumes the topic."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_24_hours: int
    out_24_hours: int


@admin_command("statsAll")
@click.option("-a", "--activeTopic", "only_active", is_flag=True, help="Only topics with messages in or out.")
@click.option("-t", "--topic", help="Only this topic.")
@json_option
async def stats_all(admin: AdminClient, only_active: bool, topic: str | None, as_json: bool) -> None:
    """Show the rates of topics and of their consumer groups."""
    lines = [
        line
        for line in await topic_lines(admin, topic)
        if not only_active or line.in_24_hours > 0 or line.out_24_hours > 0
    ]
    print_found([line._asdict() for line in lines], _all_lines(lines), as_json=as_json)


def _all_lines(lines: list[TopicLine]) -> Iterator[str]:
    names = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    yield _ALL_HEAD % names
    for line in lines:
        if line.group is None:
            yield _ALL_NO_GROUP % (line.topic[:64], "", 0, line.in_tps, "", line.in_24_hours, "NO_CONSUMER")
        else:
            yield _ALL % (line.topic[:64], line.group[:64], *line[2:])


async def topic_lines(admin: AdminClient, only: str | None) -> list[TopicLine]:
    """Return a line for each topic and group, without retry and dead-letter topics and topics without a route."""
    lines: list[TopicLine] = []
    for topic in await admin.topic_list():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or only not in (None, "", topic):
            continue
        try:
            lines += await _lines_of(admin, topic)
        except AdminError as error:
            # The name server's own topics have no route: its response has a code.
            if error.code is None:
                click.echo(str(error), err=True)
    return lines


async def _lines_of(admin: AdminClient, topic: str) -> list[TopicLine]:
    groups = GroupAdmin(admin)
    masters = await groups.masters(topic)
    in_tps, in_sum = await _summed(groups, masters, "TOPIC_PUT_NUMS", topic)
    lines = []
    for group in await admin.groups_of_topic(topic):
        out_tps, out_sum = await _summed(groups, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        try:
            table = (await admin.consume_stats(group, topic)).offset_table
        except AdminError:
            table = {}
        lag = sum(offsets.broker_offset - offsets.consumer_offset for offsets in table.values())
        lines.append(TopicLine(topic, group, max(0, lag), in_tps, out_tps, in_sum, out_sum))
    return lines or [TopicLine(topic, None, 0, in_tps, 0.0, in_sum, 0)]


async def _summed(groups: GroupAdmin, brokers: list[str], name: str, key: str) -> tuple[float, int]:
    """Return messages per second and in 24 hours, summed over the brokers that have this figure."""
    tps, total = 0.0, 0
    for broker in brokers:
        try:
            stats = await groups.stats(broker, name, key)
        except AdminError:
            continue
        tps += stats.stats_minute.tps
        total += day_sum(stats)
    return tps, total


def day_sum(stats: BrokerStatsData) -> int:
    """Return the sum of the longest span with a count (`StatsAllSubCommand.compute24HourSum`)."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


@admin_command("brokerConsumeStats")
@click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, required=True, help="Address of the broker.")
@click.option("-t", "--timeoutMillis", "timeout_ms", type=click.IntRange(1), default=50_000, help="Time limit, ms.")
@click.option("-l", "--level", type=int, default=0, help="Only queues with at least this many unread messages.")
@click.option("-o", "--order", "ordered_only", type=bool, default=False, help="Only ordered topics (true|false).")
@json_option
async def broker_consume_stats(
    admin: AdminClient, broker: str, timeout_ms: int, level: int, ordered_only: bool, as_json: bool
) -> None:
    """Show the offsets and lag of the groups on a broker."""
    found = await GroupAdmin(admin).broker_consume_stats(broker, ordered_only=ordered_only, timeout_s=timeout_ms / 1000)
    rows = [row for row in _queue_rows(found) if row[6] >= level and row[7] > 0]
    keys = ("topic", "group", "brokerName", "queueId", "brokerOffset", "consumerOffset", "diff", "lastTimestamp")
    names = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    lines = [_STATS_HEAD % names]
    for topic, group, broker_name, *numbers, last_ms in rows:
        lines.append(_STATS % (topic[:64], group, broker_name[:32], *numbers, seconds_text(last_ms)))
    document = [dict(zip(keys, row, strict=True)) for row in rows]
    print_found(document, [*lines, f"\nDiff Total: {found.total_diff}"], as_json=as_json)


def _queue_rows(found: ConsumeStatsList[str]) -> Iterator[tuple[str, str, str, int, int, int, int, int]]:
    for by_group in found.consume_stats_list:
        for group, parts in by_group.items():
            for part in parts:
                for queue, offsets in sorted(by_queue(part.offset_table).items()):
                    diff = offsets.broker_offset - offsets.consumer_offset
                    yield (
                        queue.topic, group, queue.broker_name, queue.queue_id, offsets.broker_offset,
                        offsets.consumer_offset, diff, offsets.last_timestamp,
                    )  # fmt: skip


@admin_command("queryCq")
@topic_option
@click.option("-q", "--queue", "queue_id", type=click.IntRange(0), required=True, help="Queue id.")
@click.option("-i", "--index", type=int, required=True, help="First queue offset.")
@click.option("-c", "--count", type=click.IntRange(0), default=10, help="Number of entries.")
@click.option("-b", "--broker", type=SERVER_ADDRESS, help="Address of a broker; by default one of the topic.")
@click.option("-g", "--consumer", "group", help="Also show this group's subscription.")
@json_option
async def query_cq(
    admin: AdminClient, topic: str, queue_id: int, index: int, count: int, broker: str | None, group: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the entries of a ConsumeQueue."""
    found = await GroupAdmin(admin).consume_queue(topic, queue_id, index, count, group=group, broker=broker)
    print_found(found, queue_lines(found, index), as_json=as_json)


def queue_lines(found: QueryConsumeQueueResponseBody, index: int) -> list[str]:
    """Return RocketMQ's lines; `index` is the queue offset of the first entry."""
    lines = []
    if found.subscription_data is not None:
        lines += ["Subscription data: ", pretty(found.subscription_data).decode(), _RULE]
    if found.filter_data is not None:
        lines += ["Filter data: ", found.filter_data, _RULE]
    lines += ["Queue data: ", f"max: {found.max_queue_index}, min: {found.min_queue_index}", _RULE]
    for at, entry in enumerate(found.queue_data or [], index):
        fields = (
            ("physicOffset", entry.physic_offset), ("physicSize", entry.physic_size), ("tagsCode", entry.tags_code),
            ("extendDataJson", f"'{java_form(entry.extend_data_json)}'"), ("bitMap", f"'{java_form(entry.bit_map)}'"),
            ("eval", java_form(entry.eval)), ("msg", f"'{java_form(entry.msg)}'"),
        )  # fmt: skip
        text = ", ".join(f"{name}={value}" for name, value in fields)
        lines += [f"idx: {at}", f"ConsumeQueueData{{{text}}}", _RULE]
    return lines
