"""`sprocket transaction`: transactions that are neither committed nor rolled back."""

from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, admin_session, json_option, print_found
from sprocket_cli.columns import fitted, millis_text

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient


@click.group(context_settings=HELP)
def transaction() -> None:
    """Show transactions."""


@transaction.command("list")
@click.option("-t", "--topic", "topic_name", help="Only messages for this topic.")
@click.option("-g", "--group", "group", help="Only this producer group.")
@json_option
@admin_session
async def list_transactions(admin: "AdminClient", topic_name: str | None, group: str | None, as_json: bool) -> None:
    """List the open transactions of every broker, oldest first."""
    from sprocket.client.admin.transaction_lookup import open_transactions

    found = [
        each
        for each in await open_transactions(admin)
        if topic_name in (None, each.topic) and group in (None, each.group)
    ]
    found.sort(key=lambda each: each.born_timestamp)
    head = ("broker", "topic", "queue", "group", "messageId", "halfOffset", "checks", "born")
    rows = [
        (
            each.broker, each.topic, each.queue_id, each.group, each.message_id, each.queue_offset, each.check_times,
            millis_text(each.born_timestamp),
        )
        for each in found
    ]  # fmt: skip
    print_found(found, fitted(head, rows), as_json=as_json)
