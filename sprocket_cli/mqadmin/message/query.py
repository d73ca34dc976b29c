"""`mqadmin` about single messages.

Unlike RocketMQ's, these commands do not resend a message or push it to a consumer (RocketMQ's flags -s, -u, -g, -d).
"""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.admin.message_tracks import MessageTrack, message_tracks
from sprocket.client.admin.stored_message import StoredMessage
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.bodies.client import MessageQueue
from sprocket_cli.client_session import CommandFailed, json_option, option_set, print_found, print_json
from sprocket_cli.columns import millis_text, parse_time
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.message.text import decoded, message_line, properties_text, shown_id
from sprocket_cli.mqadmin.options import admin_command, route_option, topic_option

_FIELD = "%-20s %s"
_KEY_HEAD = "%-50s %4s %40s"
_KEY_ROW = "%-50s %4d %40d"
_MAX_LONG = (1 << 63) - 1
_MAX_NAME_BYTES = 240
format_option = click.option("-f", "--bodyFormat", "body_format", help="Also print the body, in this charset.")


def message_fields(
    message: ReceivedMessage, properties: Mapping[str, str], body_path: str, *, with_id: bool
) -> list[tuple[str, object]]:
    """Return names and values in RocketMQ's order (`QueryMsgByIdSubCommand.printMsg`)."""
    fields: list[tuple[str, object]] = [("OffsetID:", message.offset_message_id)] if with_id else []
    return [
        *fields,
        ("Topic:", message.topic),
        ("Tags:", f"[{properties.get('TAGS', 'null')}]"),
        ("Keys:", f"[{properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", millis_text(message.born_timestamp_ms)),
        ("Store Timestamp:", millis_text(message.store_timestamp_ms)),
        ("Born Host:", "{}:{}".format(*message.born_host)),
        ("Store Host:", "{}:{}".format(*message.store_host)),
        ("System Flag:", message.sys_flag),
        ("Properties:", properties_text(properties)),
        ("Message Body Path:", body_path),
    ]


def message_json(message: ReceivedMessage) -> Mapping[str, object]:
    """Return a message as `--json` prints it."""
    return {
        "msgId": shown_id(message),
        "offsetMsgId": message.offset_message_id,
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "properties": dict(message.properties),
        "body": message.body.decode(errors="replace"),
    }


def show_message(
    message: ReceivedMessage, tracks: Sequence[MessageTrack], body_format: str | None = None, *, number: int = 0,
    with_id: bool, properties: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Print a message and what its groups did with it, and write its body to a file, as RocketMQ does.

    `properties` are printed instead of the message's own.
    """
    body_path = _write_body(message, number)
    for name, value in message_fields(
        message, message.properties if properties is None else properties, body_path, with_id=with_id
    ):
        click.echo(_FIELD % (name, value))
    if body_format is not None:
        click.echo(_FIELD % ("Message Body:", decoded(message.body, body_format)))
    click.echo("\n")
    # RocketMQ ends the line of a group in all commands but queryMsgByUniqueKey, which has no id of the broker either.
    for track in tracks:
        words = f"consumerGroup={track.group}, trackType={track.type.value}, exceptionDesc={track.reason or 'null'}"
        click.echo(f"MessageTrack [{words}]", nl=with_id)
    if not tracks:
        click.echo("WARN: No Consumer", nl=False)


async def _tracks(admin: AdminClient, message: ReceivedMessage) -> list[MessageTrack]:
    """Return what the groups did with a message; none, after a line on stderr, if that cannot be asked."""
    try:
        return await message_tracks(admin, message)
    except AdminError as error:
        click.echo(str(error), err=True)
        return []


def _write_body(message: ReceivedMessage, number: int) -> str:
    directory = Path(tempfile.gettempdir()) / f"rocketmq-{os.getuid()}" / "msgbodys"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The producer chose the id: it must not lead out of the directory or be too long for a file name.
    name = "".join(letter for letter in shown_id(message) if letter.isalnum()) or message.offset_message_id
    if len(name.encode()) > _MAX_NAME_BYTES:
        name = message.offset_message_id
    path = directory / (f"{name}_{number}" if number else name)
    path.write_bytes(message.body)
    return str(path)


@admin_command("queryMsgById")
@topic_option
@click.option("-i", "--msgId", "message_ids", required=True, help="Message ids, separated by commas.")
@route_option
@format_option
@json_option
async def query_by_id(
    admin: AdminClient, topic: str, message_ids: str, cluster: str | None, body_format: str | None, as_json: bool
) -> None:
    """Show messages with these ids."""
    lookup, ids = MessageLookup(admin), [word.strip() for word in message_ids.split(",") if word.strip()]
    found = [await lookup.by_id(topic, message_id, cluster) for message_id in ids]
    if as_json:
        print_json([message_json(message) for message in found if message is not None])
    for message in [] if as_json else found:
        if message is None:
            click.echo("\nMessage not found!")
        else:
            show_message(message, await _tracks(admin, message), body_format, with_id=True)
    if None in found:
        raise CommandFailed("Message not found!")


@admin_command("queryMsgByKey")
@topic_option
@click.option("-k", "--msgKey", "key", required=True, help="Message key.")
@click.option("-b", "--beginTimestamp", "begin_ms", type=int, default=0, help="Stored at this time, ms, or later.")
@click.option("-e", "--endTimestamp", "end_ms", type=int, default=_MAX_LONG, help="Stored at this time or before.")
@click.option("-m", "--maxNum", "count", type=click.IntRange(1), default=64, help="Maximum messages of each broker.")
@route_option
@json_option
async def query_by_key(
    admin: AdminClient, topic: str, key: str, begin_ms: int, end_ms: int, count: int, cluster: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List the messages of a topic that have a key."""
    found = await MessageLookup(admin).by_key(topic, key, count, begin_ms, end_ms, cluster)
    if not found and not as_json:
        raise CommandFailed("query message by key finished, but no message.")
    rows = (_KEY_ROW % (shown_id(one), one.queue.queue_id, one.queue_offset) for one in found)
    lines = [_KEY_HEAD % ("#Message ID", "#QID", "#Offset"), *rows]
    print_found([message_json(message) for message in found], lines, as_json=as_json)


@admin_command("queryMsgByUniqueKey")
@topic_option
@click.option("-i", "--msgId", "message_id", required=True, help="Message id that the producer set.")
@click.option("-a", "--showAll", "show_all", is_flag=True, help="All messages with this id, at most 32.")
@route_option
@json_option
async def query_by_unique_key(
    admin: AdminClient, topic: str, message_id: str, show_all: bool, cluster: str | None, as_json: bool
) -> None:
    """Show the message with the id that its producer set."""
    found = await MessageLookup(admin).by_unique_key(topic, message_id, cluster)
    shown = found if show_all else found[:1]
    if as_json:
        print_json([message_json(message) for message in shown])
        return
    if not shown:
        raise CommandFailed("query message by key finished, but no message.")
    for number, message in enumerate(shown):
        show_message(message, await _tracks(admin, message), number=number, with_id=False)


@admin_command("queryMsgByOffset")
@topic_option
@click.option("-b", "--brokerName", "broker_name", required=True, help="Broker name.")
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), required=True, help="Queue id.")
@click.option("-o", "--offset", type=click.IntRange(0), required=True, help="Queue offset.")
@format_option
@json_option
async def query_by_offset(
    admin: AdminClient, topic: str, broker_name: str, queue_id: int, offset: int, body_format: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the message at an offset of a queue."""
    lookup = MessageLookup(admin)
    queue, address = await _queue(lookup, topic, broker_name, queue_id)
    # A batch in one record arrives whole.
    found, _ = await lookup.stored(queue, address, offset, max_messages=1)
    stored = next((one for one in found if one.message.queue_offset == offset), None)
    if stored is None:
        raise CommandFailed("Message not found!")
    if as_json:
        print_json(message_json(stored.message))
    else:
        tracks = await _tracks(admin, stored.message)
        show_message(stored.message, tracks, body_format, with_id=True, properties=stored.properties)


async def _queue(lookup: MessageLookup, topic: str, broker_name: str, queue_id: int) -> tuple[MessageQueue, str]:
    """Return a queue and the address of its broker.  Raises CommandFailed if there is none."""
    for queue, address in await lookup.queues(topic):
        if (queue.broker_name, queue.queue_id) == (broker_name, queue_id):
            return queue, address
    raise CommandFailed(f"topic {topic} has no queue {queue_id} on broker {broker_name}")


# What was stored in a span of time.
_read_options = option_set(
    click.option("-c", "--charsetName", "charset", default="UTF-8", help="Charset of bodies."),
    click.option("-s", "--subExpression", "tags", default="*", help="Tags: 'TagA || TagB'."),
    click.option("-b", "--beginTimestamp", "begin", help="From this time on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS."),
    click.option("-e", "--endTimestamp", "end", help="Before this time."),
)


@admin_command("printMsg")
@topic_option
@_read_options
@click.option("-d", "--printBody", "print_body", type=bool, default=True, help="Print bodies (true|false).")
@click.option("-l", "--lmqParentTopic", "route_topic", help="Topic whose route names the brokers.")
@json_option
async def print_messages(
    admin: AdminClient, topic: str, charset: str, tags: str, begin: str | None, end: str | None, print_body: bool,
    route_topic: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the messages of a topic that were stored in a span of time."""
    begin_ms, end_ms, lookup = parse_time(begin), parse_time(end), MessageLookup(admin)
    for queue, address in await lookup.queues(topic, route_topic):
        start, stop = await lookup.bounds(queue, address, begin_ms, end_ms)
        if not as_json:
            click.echo(f"minOffset={start}, maxOffset={stop}, {java_form(queue)}")
        async for page in lookup.stored_pages(queue, address, start, stop, tags):
            for stored in page:
                print_stored(stored, charset if print_body else None, as_json=as_json)
        if not as_json:
            click.echo("-" * 56)


def print_stored(stored: StoredMessage, charset: str | None, *, as_json: bool) -> None:
    """Print a message in one line, as JSON or with its body in `charset`, without it if that is None."""
    if as_json:
        print_json(message_json(stored.message))
    else:
        click.echo(message_line(stored, charset))


@admin_command("printMsgByQueue")
@topic_option
@click.option("-a", "--brokerName", "broker_name", required=True, help="Broker name.")
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), required=True, help="Queue id.")
@_read_options
@click.option("-p", "--printMsg", "print_message", type=bool, default=False, help="Print messages (true|false).")
@click.option("-d", "--printBody", "print_body", type=bool, default=False, help="With -p: bodies, too (true|false).")
@click.option("-f", "--calculate", "count_tags", type=bool, default=False, help="Count messages by tag (true|false).")
@json_option
async def print_messages_of_queue(
    admin: AdminClient, topic: str, broker_name: str, queue_id: int, charset: str, tags: str, begin: str | None,
    end: str | None, print_message: bool, print_body: bool, count_tags: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print the messages of a queue, or count them by tag.  Without -p, -f and --json it prints nothing."""
    begin_ms, end_ms, lookup = parse_time(begin), parse_time(end), MessageLookup(admin)
    queue, address = await _queue(lookup, topic, broker_name, queue_id)
    start, stop = await lookup.bounds(queue, address, begin_ms, end_ms)
    counts = Counter[str]()
    async for page in lookup.stored_pages(queue, address, start, stop, tags):
        for stored in page:
            counts[stored.message.tags] += 1
            if as_json or print_message:
                print_stored(stored, charset if print_body else None, as_json=as_json)
    if as_json or not count_tags:
        return
    for tag, count in counts.most_common():
        if tag.strip():
            click.echo(f"Tag: {tag:<30} Count: {count}")
