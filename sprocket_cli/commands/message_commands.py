"""`sprocket send` and `sprocket consume`: messages from and to a terminal or a pipe."""

import sys
from typing import TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import (
    HELP,
    client_settings,
    json_option,
    name_servers,
    namespace_option,
    namesrv_option,
    parse_property,
    print_json,
    run,
    tool_credentials,
    tool_tls,
)  # fmt: skip

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.message import ReceivedMessage
    from sprocket.client.send_result import SendResult

# Queues of a group that `consume` names.
_MAX_PLACES: Final = 8


@click.command(context_settings=HELP)
@click.argument("topic")
@click.argument("body", required=False)
@namesrv_option
@namespace_option
@click.option("--tag", default="", help="Tag that consumers can filter by.")
@click.option("--key", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option("-p", "--property", "properties", multiple=True, callback=parse_property, metavar="NAME=VALUE")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Deliver later: 1 is 1 s, 18 is 2 h.")
@click.option("--priority", type=click.IntRange(0), help="In a topic of type PRIORITY: higher is consumed first.")
@click.option("--group", default="sprocket-send", show_default=True, help="Producer group.")
@json_option
def send(
    topic: str, body: str | None, namesrv: str | None, namespace: str, tag: str, keys: tuple[str, ...],
    properties: dict[str, str], delay_level: int, priority: int | None, group: str, as_json: bool,
) -> None:  # fmt: skip
    """Send BODY to TOPIC; without BODY, each line of standard input is a message."""
    from sprocket.client.message import Message
    from sprocket.client.producer import Producer
    from sprocket.remoting.message.namespaces import with_namespace
    from sprocket_cli.piped_lines import lines

    servers, topic = ";".join(name_servers(namesrv)), with_namespace(namespace, topic)

    def message(content: bytes) -> Message:
        return Message(
            topic, content, tags=tag, keys=keys, properties=properties, delay_level=delay_level, priority=priority
        )

    async def send_all() -> None:
        async with Producer(group, client=client_settings(servers)) as producer:
            if body is not None:
                # Bytes on the command line that are no UTF-8 are sent unchanged.
                _print_sent(await producer.send(message(body.encode(errors="surrogateescape"))), as_json)
            elif sys.stdin.isatty():
                for line in sys.stdin.buffer:
                    _print_sent(await producer.send(message(_without_end(line))), as_json)
            else:
                messages = (message(_without_end(line)) async for line in lines(sys.stdin.fileno()))
                async for result in producer.send_many(messages):
                    _print_sent(result, as_json)

    run(send_all())


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _print_sent(result: "SendResult", as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "status": result.status.name,
                "messageId": result.message_id,
                "topic": result.queue.topic,
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "offset": result.queue_offset,
            }
        )
    else:
        where = f"{result.queue.broker_name} queue {result.queue.queue_id} offset {result.queue_offset}"
        click.echo(f"{result.status.name} {result.message_id} {where}")


@click.command(context_settings=HELP)
@click.argument("topic")
@namesrv_option
@namespace_option
@click.option("-g", "--group", default="sprocket-consume", show_default=True, help="Consumer group.")
@click.option("--tags", default="*", show_default=True, help="Tags: 'A || B', or * for all.")
@click.option(
    "--from", "start", type=click.Choice(["first", "last"]), default="last", show_default=True,
    help="Where a group without offsets begins.",
)  # fmt: skip
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), help="Stop after this many seconds without a message.")
@json_option
def consume(
    topic: str, namesrv: str | None, namespace: str, group: str, tags: str, start: str, limit: int | None,
    wait_s: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the messages of TOPIC as they arrive, one per line, and acknowledge them."""
    import asyncio
    from contextlib import suppress

    from sprocket.client.admin.admin_client import AdminDenied
    from sprocket.client.consumer import Consumer
    from sprocket.client.rebalance.start_offset import ConsumeFrom
    from sprocket.remoting.message.namespaces import with_namespace
    from sprocket_cli.patient_admin import PatientAdminClient
    from sprocket_cli.permission import check_may_consume

    servers = ";".join(name_servers(namesrv))
    topic, group = with_namespace(namespace, topic), with_namespace(namespace, group)
    begin = ConsumeFrom.FIRST if start == "first" else ConsumeFrom.LAST

    async def consume_all() -> None:
        # A consumer retries without name servers or permissions; a person wants the error at once.
        async with PatientAdminClient(servers.split(";"), credentials=tool_credentials(), tls=tool_tls()) as admin:
            with suppress(AdminDenied):  # an account that may only consume
                await admin.cluster_info()
            await check_may_consume(admin, topic, tags, group)
            continues = await _continues(admin, topic, group)
        if continues:
            # A group that has read everything prints nothing until the next message.
            click.echo(f"group {group} continues: {continues}", err=True)
        async with Consumer(group, {topic: tags}, client=client_settings(servers), consume_from=begin) as consumer:
            count = 0
            while limit is None or count < limit:
                try:
                    async with asyncio.timeout(wait_s):
                        message = await anext(consumer)
                except TimeoutError:
                    return
                _print_received(message, as_json)
                await consumer.ack(message)
                count += 1

    run(consume_all())


async def _continues(admin: "AdminClient", topic: str, group: str) -> str:
    """Return where the group stands in each queue that it has read from; empty for a new group, or if none answers."""
    from sprocket.client.admin.admin_client import AdminError

    try:
        offsets = (await admin.consume_stats(group, topic, topic)).offset_table
    except AdminError:
        return ""
    known = sorted(
        (queue.broker_name, queue.queue_id, stand) for queue, stand in offsets.items()
        if queue.topic == topic and stand.consumer_offset > 0
    )  # fmt: skip
    places = [
        f"{broker} queue {queue_id} at offset {stand.consumer_offset} of {stand.broker_offset}"
        for broker, queue_id, stand in known[:_MAX_PLACES]
    ]
    more = len(known) - len(places)
    return ", ".join(places) + (f", and {more} more queues" if more > 0 else "")


def _print_received(message: "ReceivedMessage", as_json: bool) -> None:
    text = message.body.decode(errors="replace")
    if not as_json:
        click.echo(text)
        return
    print_json(
        {
            "topic": message.topic,
            "broker": message.queue.broker_name,
            "queue": message.queue.queue_id,
            "offset": message.queue_offset,
            "storeTimestamp": message.store_timestamp_ms,
            "reconsumeTimes": message.reconsume_times,
            "properties": dict(message.properties),
            "body": text,
        }
    )
