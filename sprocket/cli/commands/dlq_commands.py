"""`sprocket dlq`: what a group could not consume, and its way back."""

from typing import TYPE_CHECKING

import click

from sprocket.cli.client_session import HELP, json_option, namesrv_option, print_json, with_admin
from sprocket.cli.mqadmin.message import parse_time
from sprocket.common.clock import SystemClock

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.admin.redrive import DeadLetterFilter, Redriven


@click.group(context_settings=HELP)
def dlq() -> None:
    """Handle dead letters."""


@dlq.command()
@click.argument("group")
@namesrv_option
@click.option("--filter", "sql", metavar="SQL92", help="Only those whose properties fulfil this.")
@click.option("--tag", "tags", multiple=True, help="Only those with this tag; may be given several times.")
@click.option("--key", "keys", multiple=True, help="Only those with this key; may be given several times.")
@click.option("--since", help="Only those that died at this time or later: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS.")
@click.option("--until", help="Only those that died before this time.")
@click.option("--max", "most", type=click.IntRange(1), help="At most so many.")
@click.option("--to-retry", is_flag=True, help="To the group's retry topic: no other group gets them again.")
@click.option("--dry-run", is_flag=True, help="Only count; send and remember nothing.")
@json_option
def redrive(
    group: str,
    namesrv: str | None,
    sql: str | None,
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    since: str | None,
    until: str | None,
    most: int | None,
    to_retry: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send GROUP's dead letters back to the topics that they came from.

    They keep their ids and properties, and the dead-letter topic keeps its copies. What was sent back is not sent
    again by another run, whatever its filter.
    """
    from sprocket.client.admin.redrive import DeadLetterFilter

    wanted = DeadLetterFilter(
        tags=frozenset(tags), keys=frozenset(keys), since_ms=parse_time(since), until_ms=parse_time(until), sql=sql
    )
    done = with_admin(namesrv, lambda admin: _redrive(admin, group.strip(), wanted, to_retry, dry_run, most))
    if as_json:
        print_json(
            {
                "dryRun": dry_run, "matched": done.matched, "sent": done.sent, "sentBefore": done.sent_before,
                "withoutOrigin": done.without_origin, "targets": done.targets,
            }
        )  # fmt: skip
        return
    for line in report_lines(done, dry_run):
        click.echo(line)


async def _redrive(
    admin: "AdminClient", group: str, wanted: "DeadLetterFilter", to_retry: bool, dry_run: bool, most: int | None
) -> "Redriven":
    from sprocket.client.admin.redrive import Redrive, RedriveFailed
    from sprocket.client.connection.identity import new_identity

    owner = (await new_identity(SystemClock(), None)).client_id
    try:
        return await Redrive(admin, group, to_retry=to_retry, owner=owner).run(
            wanted, dry_run=dry_run, max_messages=most
        )
    except RedriveFailed as error:
        for line in report_lines(error.done, dry_run):
            click.echo(line)
        raise


def report_lines(done: "Redriven", dry_run: bool) -> list[str]:
    """Counts in words."""
    verb = "would send" if dry_run else "sent"
    lines = [f"{verb} {done.sent} of {done.matched} dead letters"]
    lines += [f"  {count} to {topic}" for topic, count in sorted(done.targets.items())]
    if done.sent_before:
        lines.append(f"{done.sent_before} were sent back before")
    if done.without_origin:
        lines.append(f"{done.without_origin} do not say where they came from; --to-retry sends them all the same")
    return lines
