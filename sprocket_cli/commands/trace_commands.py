"""`sprocket trace`: what clients recorded of messages."""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import HELP, admin_session, json_option, print_found
from sprocket_cli.columns import parse_time, seconds_text

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.trace.lookup import Found

# Records that are held before they are written.
_PART: Final = 1000
_topic_option = click.option("-t", "--topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Trace topic.")


@click.group(context_settings=HELP)
def trace() -> None:
    """Look at message traces, which clients with `trace=` and Java's with enableMsgTrace record."""


@trace.command()
@click.argument("message_id")
@_topic_option
@json_option
@admin_session
async def show(admin: "AdminClient", message_id: str, topic: str, as_json: bool) -> None:
    """Show who sent the message MESSAGE_ID, who got it, and how long that took."""
    from sprocket.client.trace.export import as_dict
    from sprocket.client.trace.lookup import TraceLookup

    found = await TraceLookup(admin, topic).of_message(message_id.strip())
    print_found([as_dict(record, host) for record, host in found], lines(found), as_json=as_json)


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
@_topic_option
@click.option(
    "-f", "--format", "form", type=click.Choice(["jsonl", "otlp", "elasticsearch"]), default="jsonl", show_default=True,
    help="JSON lines; requests of OTLP in JSON, one in a line; bulk requests of Elasticsearch.",
)  # fmt: skip
@click.option("-o", "--output", type=click.File("w", encoding="utf-8"), default="-", help="A file; - prints.")
@click.option("--since", help="Stored at this time or later: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS.")
@click.option("--until", help="Stored before this time.")
@click.option("--index", default="rocketmq-trace", show_default=True, help="Index of Elasticsearch.")
@admin_session
async def export(
    admin: "AdminClient", topic: str, form: str, output: IO[str], since: str | None, until: str | None, index: str
) -> None:
    """Write stored traces for other tools.

    \b
    sprocket trace export -f otlp | while read -r r; do
      curl -H 'Content-Type: application/json' -d "$r" http://collector:4318/v1/traces; done
    sprocket trace export -f elasticsearch -o t.ndjson
    curl -H 'Content-Type: application/x-ndjson' --data-binary @t.ndjson http://es:9200/_bulk
    """
    from sprocket.client.trace.export import bulk_lines, json_lines, otlp_lines
    from sprocket.client.trace.lookup import Found, TraceLookup

    forms: dict[str, Callable[[Iterable[Found]], Iterator[str]]] = {
        "jsonl": json_lines, "otlp": otlp_lines, "elasticsearch": lambda records: bulk_lines(records, index),
    }  # fmt: skip
    count, part = 0, list[Found]()

    def flush() -> None:
        output.writelines(line + "\n" for line in forms[form](part))
        part.clear()

    async for one in TraceLookup(admin, topic).between(parse_time(since), parse_time(until)):
        part.append(one)
        count += 1
        if len(part) >= _PART:
            flush()
    flush()
    click.echo(f"{count} records", err=True)
