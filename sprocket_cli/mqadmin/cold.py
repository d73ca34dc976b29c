"""`mqadmin` about reads of old messages: read-ahead of the CommitLog, and the thresholds of groups.

Source of names, flags and output: RocketMQ 5.3.3, `CommitLogSetReadAheadSubCommand`,
`GetColdDataFlowCtrInfoSubCommand`, `UpdateColdDataFlowCtrGroupConfigSubCommand`,
`RemoveColdDataFlowCtrGroupConfigSubCommand`.
"""

import json
from collections.abc import Awaitable, Callable

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.codes import RequestCode
from sprocket_cli.ask_each import ask_each
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.target import NO_MASTER, Target, target_options

_group_option = click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")


async def _print_each(admin: AdminClient, target: Target, text: Callable[[str], Awaitable[str]]) -> None:
    """Print a line with the address of each master and slave, then what `text` returns of it."""
    titles = await target.titles(admin)

    async def show(address: str) -> None:
        answer = await text(address)
        click.echo(f" ============{titles[address]}============\n{answer}")

    await ask_each((address for address in titles if address != NO_MASTER), show)


@admin_command("setCommitLogReadAheadMode")
@target_options()
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", required=True, type=click.Choice(["0", "1"]),
    help="0: read ahead; 1: random reads.",
)  # fmt: skip
async def set_read_ahead_mode(admin: AdminClient, target: Target, mode: str) -> None:
    """Switch read-ahead of the CommitLog on or off."""

    async def text(address: str) -> str:
        return f"commitLog set readAhead mode rstStr{await admin.set_read_ahead(address, on=mode == '0')}"

    await _print_each(admin, target, text)


@admin_command("getColdDataFlowCtrInfo")
@target_options()
async def get_cold_flow_info(admin: AdminClient, target: Target) -> None:
    """Show which groups read old messages, how much, and their thresholds."""

    async def text(address: str) -> str:
        info = json.loads((await admin.ask(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)
        for reads in info["runtimeTable"].values():
            reads["lastColdReadTimeFormat"] = seconds_text(int(reads.pop("lastColdReadTimeMills")))
            reads["createTimeFormat"] = seconds_text(int(reads.pop("createTimeMills")))
        return json.dumps(info, indent="\t", ensure_ascii=False, separators=(",", ":"))

    await _print_each(admin, target, text)


@admin_command("updateColdDataFlowCtrGroupConfig")
@target_options("Every master of this cluster.")
@_group_option
@click.option(
    "-v", "--threshold", required=True, type=click.IntRange(0), help="Cold bytes that the group may read in 5 s."
)
async def update_cold_flow_group(admin: AdminClient, target: Target, group: str, threshold: int) -> None:
    """Set the threshold of a group for reads of old messages."""
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.set_cold_threshold(address, group, threshold),
        done=lambda address: f"updateColdDataFlowCtrGroupConfig success, {address}",
    )


@admin_command("removeColdDataFlowCtrGroupConfig")
@target_options("Every master of this cluster.")
@_group_option
async def remove_cold_flow_group(admin: AdminClient, target: Target, group: str) -> None:
    """Remove the threshold of a group for reads of old messages."""
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.remove_cold_threshold(address, group),
        done=lambda address: f"remove broker cold read threshold success, {address}",
    )
