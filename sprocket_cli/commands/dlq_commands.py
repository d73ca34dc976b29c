"""`sprocket dlq`: redrive of a group's dead letters."""

from typing import TYPE_CHECKING

import click

from sprocket.common.clock import SystemClock
from sprocket_cli.client_session import HELP, admin_session, json_option, print_found
from sprocket_cli.columns import parse_time

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.admin.redrive import Redriven


@click.group(context_settings=HELP)
def dlq() -> None:
    """Handle dead letters."""


@dlq.command()
@click.argument("group")
@click.option("--filter", "sql", metavar="SQL92", help="Only those whose properties match.")
@click.option("--tag", "tags", multiple=True, help="Only those with this tag; repeatable.")
@click.option("--key", "keys", multiple=True, help="Only those with this key; repeatable.")
@click.option("--since", help="Only those that died at this time or later: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS.")
@click.option("--until", help="Only those that died before this time.")
@click.option("--max", "max_count", type=click.IntRange(1), help="Maximum number.")
@click.option("--to-retry", is_flag=True, help="Send them to the group's retry topic, which other groups do not read.")
@click.option("--dry-run", is_flag=True, help="Only count them; send and record nothing.")
@json_option
@admin_session
async def redrive(
    admin: "AdminClient", group: str, sql: str | None, tags: tuple[str, ...], keys: tuple[str, ...],
    since: str | None, until: str | None, max_count: int | None, to_retry: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send GROUP's dead letters to the topics that they came from.

    They keep their ids and properties, and stay in the dead-letter topic. A later run does not send the same dead
    letters again, even with another filter.
    """
    from sprocket.client.admin.redrive import DeadLetterFilter, Redrive, RedriveFailed
    from sprocket.client.connection.identity import new_identity

    wanted = DeadLetterFilter(
        tags=frozenset(tags), keys=frozenset(keys), since_ms=parse_time(since), until_ms=parse_time(until), sql=sql
    )
    owner = (await new_identity(SystemClock(), None)).client_id
    work = Redrive(admin, group.strip(), to_retry=to_retry, owner=owner)
    try:
        done = await work.run(wanted, dry_run=dry_run, max_messages=max_count)
    except RedriveFailed as error:
        for line in report_lines(error.done, dry_run):
            click.echo(line)
        raise
    document = {
        "dryRun": dry_run, "matched": done.matched, "sent": done.sent, "sentBefore": done.sent_before,
        "withoutOrigin": done.without_origin, "targets": done.targets,
    }  # fmt: skip
    print_found(document, report_lines(done, dry_run), as_json=as_json)


def report_lines(done: "Redriven", dry_run: bool) -> list[str]:
    """Return the counts in words."""
    verb = "would send" if dry_run else "sent"
    lines = [f"{verb} {done.sent} of {done.matched} dead letters"]
    lines += [f"  {count} to {topic}" for topic, count in sorted(done.targets.items())]
    if done.sent_before:
        lines.append(f"{done.sent_before} were sent before")
    if done.without_origin:
        lines.append(f"{done.without_origin} have no topic of origin; --to-retry sends them anyway")
    return lines
