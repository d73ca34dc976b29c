"""`mqadmin` about traces: what clients recorded of a message.

Source of the format: RocketMQ 5.3.3, `TraceDataEncoder`, `TraceView`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket_cli.client_session import json_option, print_found
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.options import admin_command

_ROW: Final = "%-10s %-20s %-20s %-20s %-10s %-10s"
_MAX_LONG: Final = (1 << 63) - 1
_RECORD_END, _FIELD_END = "\x02", "\x01"
_PUB, _SUB = "Pub", "SubAfter"


class Trace(NamedTuple):
    """One send or one consumption of a message."""

    kind: str  # Pub or SubAfter
    group: str
    client_host: str
    time_ms: int
    cost_ms: int
    is_success: bool


def traces(body: str, message_id: str, client_host: str) -> Iterator[Trace]:
    """Yield the sends and consumptions of a message in the body of a trace message.  Other records are left out.

    Records of a consumption by an old client have no time and no group.  Damaged records are left out.
    """
    for record in body.split(_RECORD_END):
        # Java's `split` drops empty fields at the end.
        fields = record.rstrip(_FIELD_END).split(_FIELD_END)
        try:
            if fields[0] == _PUB and fields[5] == message_id:
                success = fields[12] if len(fields) == 13 else fields[13]
                yield Trace(_PUB, fields[3], client_host, int(fields[1]), int(fields[10]), success == "true")
            elif fields[0] == _SUB and fields[2] == message_id:
                time_ms, group = (int(fields[7]), fields[8]) if len(fields) >= 9 else (0, "null")
                yield Trace(_SUB, group, client_host, time_ms, int(fields[3]), fields[4] == "true")
        except (IndexError, ValueError):
            continue


@admin_command("queryMsgTraceById")
@click.option("-i", "--msgId", "message_id", required=True, help="Message id that the producer set.")
@click.option("-t", "--traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC", help="Topic of the traces.")
@click.option("-b", "--beginTimestamp", "begin_ms", type=int, default=0, help="Stored at this time, ms, or later.")
@click.option("-e", "--endTimestamp", "end_ms", type=int, default=_MAX_LONG, help="Stored at this time or before.")
@click.option("-c", "--maxNum", "max_count", type=click.IntRange(1), default=64, help="Maximum trace messages.")
@json_option
async def query_trace(
    admin: AdminClient, message_id: str, topic: str, begin_ms: int, end_ms: int, max_count: int, as_json: bool
) -> None:
    """Show who sent a message and who consumed it, if these clients record traces."""
    messages = await MessageLookup(admin).by_key(topic, message_id, max_count, begin_ms, end_ms)
    found = [
        trace
        for message in messages
        for trace in traces(message.body.decode("utf-8", "replace"), message_id, message.born_host[0])
    ]
    print_found([trace._asdict() for trace in found], trace_lines(found), as_json=as_json)


def trace_lines(found: list[Trace]) -> Iterator[str]:
    """Yield RocketMQ's lines: a table for each send, then a table for each consumer group."""
    for trace in found:
        if trace.kind == _PUB:
            yield _ROW % ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
            yield _line("Pub", trace)
            yield ""
    consumed = [trace for trace in found if trace.kind == _SUB]
    for group in dict.fromkeys(trace.group for trace in consumed):
        yield _ROW % ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        yield from (_line("Sub", trace) for trace in consumed if trace.group == group)
        yield ""


def _line(kind: str, trace: Trace) -> str:
    status = "success" if trace.is_success else "failed"
    return _ROW % (kind, trace.group, trace.client_host, seconds_text(trace.time_ms), f"{trace.cost_ms}ms", status)
