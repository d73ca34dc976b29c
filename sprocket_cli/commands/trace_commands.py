"""`sprocket trace`: what clients recorded of messages."""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, json_option, namesrv_option, print_json, with_admin
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.message import parse_time

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.trace.lookup import Found

_topic_option = click.option("-t", "--topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Trace topic.")


@click.group(context_settings=HELP)
def trace() -> None:
    """Look at message traces, which clients with `trace=` and Java's with enableMsgTrace record."""


@trace.command()
@click.argument("message_id")
@namesrv_option
@_topic_option
@json_option
def show(message_id: str, namesrv: str | None, topic: str, as_json: bool) -> None:
    """Show who sent the message MESSAGE_ID, who got it, and how long that took."""

    async def ask(admin: "AdminClient") -> "list[Found]":
        from sprocket.client.trace.lookup import TraceLookup

        return await TraceLookup(admin, topic).of_message(message_id.strip())

    found = with_admin(namesrv, ask)
    if as_json:
        from sprocket.client.trace.export import as_dict

        print_json([as_dict(record, host) for record, host in found])
        return
    for line in lines(found):
        click.echo(line)


def lines(found: "list[Found]") -> Iterator[str]:
    """Yield one line for each record, with its distance from the first."""
    if not found:
        yield "no trace: the message is unknown, or its clients record none"
        return
    begun_ms = next((record.time_ms for record, _ in found if record.time_ms), 0)
    for record, host in found:
        after = f"+{record.time_ms - begun_ms} ms" if record.time_ms else "?"
        outcome = "success" if record.is_success else "failed"
        state = f" {record.transaction_state}" if record.transaction_state else ""
        yield (
            f"{seconds_text(record.time_ms)} {after:>10}  {record.kind.value:<14} group={record.group} "
            f"client={host} cost={record.cost_ms}ms {outcome}{state}"
        )


@trace.command()
@namesrv_option
@_topic_option
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["jsonl", "otlp", "elasticsearch"]),
    default="jsonl",
    show_default=True,
    help="JSON lines; requests of OTLP in JSON, one in a line; bulk requests of Elasticsearch.",
)
@click.option("-o", "--output", type=click.File("w", encoding="utf-8"), default="-", help="A file; - prints.")
@click.option("--since", help="Stored at this time or later: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS.")
@click.option("--until", help="Stored before this time.")
@click.option("--index", default="rocketmq-trace", show_default=True, help="Index of Elasticsearch.")
def export(
    namesrv: str | None,
    topic: str,
    form: str,
    output: IO[str],
    since: str | None,
    until: str | None,
    index: str,
) -> None:
    """Write stored traces for other tools.

    \b
    sprocket trace export -f otlp | while read -r r; do
      curl -H 'Content-Type: application/json' -d "$r" http://collector:4318/v1/traces; done
    sprocket trace export -f elasticsearch -o t.ndjson
    curl -H 'Content-Type: application/x-ndjson' --data-binary @t.ndjson http://es:9200/_bulk
    """
    from sprocket.client.trace.export import bulk_lines, json_lines, otlp_lines

    begin_ms, end_ms = parse_time(since), parse_time(until)
    forms: dict[str, Callable[[Iterable[Found]], Iterator[str]]] = {
        "jsonl": json_lines, "otlp": otlp_lines, "elasticsearch": lambda records: bulk_lines(records, index),
    }  # fmt: skip
    write = forms[form]

    async def copy(admin: "AdminClient") -> int:
        from sprocket.client.trace.lookup import TraceLookup

        count = 0
        part: list[Found] = []

        def flush() -> None:
            for line in write(part):
                output.write(line + "\n")
            part.clear()

        async for one in TraceLookup(admin, topic).between(begin_ms, end_ms):
            part.append(one)
            count += 1
            if len(part) >= _PART:
                flush()
        flush()
        return count

    count = with_admin(namesrv, copy)
    click.echo(f"{count} records", err=True)


# Records that are held before they are written.
_PART = 1000
