"""`mqadmin` about sending and reading messages.

Unlike RocketMQ's, `consumeMessage` prints at most -c messages of all queues together.
"""

from datetime import datetime, timedelta, timezone
from typing import Final

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.common.clock import SystemClock
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket_cli.client_session import CommandFailed, WrongUsage, client_settings, json_option, print_found
from sprocket_cli.columns import parse_time
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.message.query import print_stored
from sprocket_cli.mqadmin.options import admin_command, repeat, topic_option

_CLOCK: Final = SystemClock()
_SENT: Final = "%-32s  %-4s  %-20s    %s"
_CLUSTER_RT_HEAD: Final = "%-24s  %-24s  %-4s  %-8s  %-8s"
_CLUSTER_RT: Final = "%-24s  %-24s  %-8s  %-16s  %-16s"
_STATUS_GROUP: Final = "PID_SMSC"


@admin_command("sendMessage")
@topic_option
@click.option("-p", "--body", required=True, help="Body, as UTF-8.")
@click.option("-k", "--key", "keys", default="", help="Keys, separated by spaces.")
@click.option("-c", "--tags", default="", help="Tag.")
@click.option("-b", "--broker", "broker_name", help="Name of the broker; with -i.")
@click.option("-i", "--qid", "queue_id", type=click.IntRange(0), help="Queue id; with -b.")
@click.option("-m", "--msgTraceEnable", "trace", type=bool, default=False, help="Record a trace (true|false).")
@json_option
async def send_message(
    admin: AdminClient, topic: str, body: str, keys: str, tags: str, broker_name: str | None, queue_id: int | None,
    trace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send a message."""
    if queue_id is not None and broker_name is None:
        raise WrongUsage("Broker name must be set if the queue is chosen!")
    queue = MessageQueue(topic, broker_name, queue_id) if broker_name and queue_id is not None else None
    # The end of the producer sends the record of the trace.
    async with _producer(admin, _producer_group(), TraceSettings() if trace else None) as producer:
        result = await producer.send(Message(topic, body.encode(), tags=tags, keys=keys.split()), queue=queue)
    place = result.queue
    document = {
        "brokerName": place.broker_name, "queueId": place.queue_id, "sendStatus": result.status.name,
        "msgId": result.message_id, "queueOffset": result.queue_offset,
    }  # fmt: skip
    lines = (
        _SENT % ("#Broker Name", "#QID", "#Send Result", "#MsgId"),
        _SENT % (place.broker_name, place.queue_id, result.status.name, result.message_id),
    )
    print_found(document, lines, as_json=as_json)


def _producer(admin: AdminClient, group: str, trace: TraceSettings | None = None) -> Producer:
    return Producer(group, client=client_settings(";".join(admin.name_servers)), trace=trace)


def _producer_group() -> str:
    """Return a group of its own for this run, as RocketMQ does."""
    return str(_CLOCK.wall_ms())


@admin_command("checkMsgSendRT")
@topic_option
@click.option("-a", "--amount", type=click.IntRange(2), default=100, help="Number of messages.")
@click.option("-s", "--size", "size_bytes", type=click.IntRange(1), default=128, help="Size of a body, bytes.")
async def check_send_rt(admin: AdminClient, topic: str, amount: int, size_bytes: int) -> None:
    """Send messages to a topic and show the response time of each."""
    async with _producer(admin, _producer_group()) as producer:
        queues = await producer.queues(topic)
        click.echo(_SENT % ("#Broker Name", "#QID", "#Send Result", "#RT"))
        elapsed_ms = 0
        for number in range(amount):
            queue = queues[number % len(queues)]
            began = _CLOCK.monotonic()
            try:
                await producer.send(Message(topic, b"a" * size_bytes), queue=queue)
                sent = "true"
            except ClientError:
                sent = "false"
            took_ms = round((_CLOCK.monotonic() - began) * 1000)
            # The first send also connects to the broker: it is not counted.
            elapsed_ms += took_ms if number else 0
            click.echo(_SENT % (queue.broker_name, queue.queue_id, sent, took_ms))
    click.echo(f"Avg RT: {elapsed_ms / (amount - 1):.2f}")


@admin_command("sendMsgStatus")
@click.option("-b", "--brokerName", "broker_name", required=True, help="Broker name: its topic of that name.")
@click.option("-s", "--messageSize", "size_bytes", type=click.IntRange(1), default=128, help="Size of a body, bytes.")
@click.option("-c", "--count", type=click.IntRange(1), default=50, help="Number of messages.")
async def send_status(admin: AdminClient, broker_name: str, size_bytes: int, count: int) -> None:
    """Send messages to a broker and show the result and the response time of each."""
    words = b"hello jodie"
    async with _producer(admin, _STATUS_GROUP) as producer:
        # The first send also connects to the broker: it is not shown.
        await producer.send(Message(broker_name, words * 2))
        for _ in range(count):
            began = _CLOCK.monotonic()
            result = await producer.send(Message(broker_name, words * -(-size_bytes // len(words))))
            took_ms = round((_CLOCK.monotonic() - began) * 1000)
            click.echo(f"rt={took_ms}ms, SendResult={send_result_text(result)}")


def send_result_text(result: SendResult) -> str:
    """Return a result as RocketMQ prints it (`SendResult.toString`)."""
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.message_id}, "
        f"offsetMsgId={result.offset_message_id}, messageQueue={java_form(result.queue)}, "
        f"queueOffset={result.queue_offset}, "
        f"recallHandle={java_form(result.recall_handle)}]"
    )


@admin_command("clusterRT")
@click.option("-a", "--amount", type=click.IntRange(2), default=100, help="Messages for each broker and round.")
@click.option("-s", "--size", "size_bytes", type=click.IntRange(1), default=128, help="Size of a body, bytes.")
@click.option("-c", "--cluster", help="Only this cluster.")
@click.option("-p", "--printAsTlog", "as_log", type=bool, default=False, help="Print log lines (true|false).")
@click.option("-m", "--machineRoom", "room", default="noname", help="With -p: name of the machine room.")
@click.option("-i", "--interval", "interval_s", type=click.FloatRange(min=0), default=10, help="Pause, s.")
async def cluster_rt(
    admin: AdminClient, amount: int, size_bytes: int, cluster: str | None, as_log: bool, room: str, interval_s: float
) -> None:
    """Send messages to every broker and show the mean response time, again and again until Ctrl-C."""
    if not as_log:
        click.echo(_CLUSTER_RT_HEAD % ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))

    async def show() -> None:
        table = (await admin.cluster_info()).cluster_addr_table
        for name in [cluster] if cluster else sorted(table):
            if name not in table:
                raise CommandFailed(f"cluster [{name}] not exist")
            for broker_name in sorted(table[name]):
                mean_ms, sent = await _mean_send_rt(admin, broker_name, amount, b"a" * size_bytes)
                if as_log:
                    now = china_time_text(_CLOCK.wall_ms())
                    click.echo(f"{now}|{room}|{name}|{broker_name}|{int(mean_ms + 0.5)}")
                else:
                    click.echo(_CLUSTER_RT % (name, broker_name, f"{mean_ms:.2f}", sent, amount - sent))

    await repeat(show, interval_s)


def china_time_text(time_ms: int) -> str:
    """Return ``2026-01-31 23:59:59`` at UTC+8, the zone of RocketMQ's log lines (`CLusterSendMsgRTCommand`)."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone(timedelta(hours=8))):%Y-%m-%d %H:%M:%S}"


async def _mean_send_rt(admin: AdminClient, topic: str, amount: int, body: bytes) -> tuple[float, int]:
    """Return the mean response time, ms, without the first send, and the number of messages that were sent."""
    sent, elapsed_s = 0, 0.0
    async with _producer(admin, _producer_group()) as producer:
        for number in range(amount):
            began = _CLOCK.monotonic()
            try:
                await producer.send(Message(topic, body))
                sent += 1
            except ClientError:
                pass
            elapsed_s += _CLOCK.monotonic() - began if number else 0.0
    return elapsed_s * 1000 / (amount - 1), sent


@admin_command("consumeMessage")
@topic_option
@click.option("-b", "--brokerName", "broker_name", help="Only this broker.")
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), help="Only this queue; with -b.")
@click.option("-o", "--offset", type=click.IntRange(0), help="From this queue offset on; with -i.")
@click.option("-g", "--consumerGroup", "group", help="Accepted and ignored: no offset is committed.")
@click.option("-s", "--beginTimestamp", "begin", help="From this time on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS.")
@click.option("-e", "--endTimestamp", "end", help="Before this time.")
@click.option("-c", "--MessageNumber", "count", type=click.IntRange(1), default=128, help="Maximum number of messages.")
@json_option
async def consume_message(
    admin: AdminClient, topic: str, broker_name: str | None, queue_id: int | None, offset: int | None,
    group: str | None, begin: str | None, end: str | None, count: int, as_json: bool,
) -> None:  # fmt: skip
    """Print messages of a topic; no offset is committed."""
    if queue_id is not None and broker_name is None:
        raise WrongUsage("Please set the brokerName before queueId!")
    if offset is not None and queue_id is None:
        raise WrongUsage("Please set queueId before offset!")
    begin_ms, end_ms = parse_time(begin), parse_time(end)
    if max(begin_ms or 0, end_ms or 0) > _CLOCK.wall_ms():
        raise WrongUsage("Please set beginTimestamp and endTimestamp before now!")
    if end_ms is not None and (begin_ms or 0) > end_ms:
        raise WrongUsage("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")
    lookup, left = MessageLookup(admin), count
    found = [
        (queue, address)
        for queue, address in await lookup.queues(topic)
        if broker_name in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not found:
        wanted = "" if queue_id is None else f" {queue_id}"
        raise CommandFailed(f"topic {topic} has no queue{wanted} to read on broker {broker_name or 'any'}")
    for queue, address in found:
        low, high = await lookup.bounds(queue, address, begin_ms, end_ms)
        start = max(low, offset or 0)
        if high - start > left and not as_json:
            click.echo(f"The older {left} message of the {queue.queue_id} queue will be provided")
        stop = min(high, start + left)
        async for page in lookup.stored_pages(queue, address, start, stop):
            left -= len(page)
            if not as_json:
                click.echo("Consume ok")
            for stored in page:
                print_stored(stored, "UTF-8", as_json=as_json)
        if left == 0:
            return
        if not as_json:
            click.echo(f"{java_form(queue)} print msg finished. status=NO_NEW_MSG, offset={max(start, stop)}")
