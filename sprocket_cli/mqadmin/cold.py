"""`mqadmin` about reads of old messages: read-ahead of the CommitLog, and the thresholds of groups.

Source of names, flags and output: RocketMQ 5.3.3, `CommitLogSetReadAheadSubCommand`,
`GetColdDataFlowCtrInfoSubCommand`, `UpdateColdDataFlowCtrGroupConfigSubCommand`,
`RemoveColdDataFlowCtrGroupConfigSubCommand`.
"""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import admin_command, with_admin
from sprocket_cli.columns import seconds_text
from sprocket_cli.mqadmin.options import NO_MASTER, Target, ask_each, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

_group_option = click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
# Asks the broker at an address and returns the text to print.
Request = Callable[["AdminClient", str], Awaitable[str]]


async def _from_all(admin: "AdminClient", target: Target, request: Request) -> list[str]:
    """Ask one broker, or every master and slave of a cluster.  A line with its address precedes each response."""
    if target.broker is not None:
        return [f" ============{target.broker}============", await request(admin, target.broker)]
    lines = []
    for master, slaves in await admin.broker_groups(target.cluster or ""):
        heads = {} if master is None else {master: f"Master: {master}"}
        heads |= {slave: f"My Master: {master or NO_MASTER}=====Slave: {slave}" for slave in slaves}
        for address, head in heads.items():
            lines += [f" ============{head}============", await request(admin, address)]
    return lines


@admin_command("setCommitLogReadAheadMode")
@target_options()
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", required=True, type=click.Choice(["0", "1"]),
    help="0: read ahead; 1: random reads.",
)  # fmt: skip
def set_read_ahead_mode(namesrv: str | None, target: Target, mode: str) -> None:
    """Switch read-ahead of the CommitLog on or off."""

    async def request(admin: "AdminClient", address: str) -> str:
        return f"commitLog set readAhead mode rstStr{await admin.set_read_ahead(address, on=mode == '0')}"

    for line in with_admin(namesrv, lambda admin: _from_all(admin, target, request)):
        click.echo(line)


@admin_command("getColdDataFlowCtrInfo")
@target_options()
def get_cold_flow_info(namesrv: str | None, target: Target) -> None:
    """Show which groups read old messages, how much, and their thresholds."""
    from sprocket.remoting.codes import RequestCode

    async def request(admin: "AdminClient", address: str) -> str:
        info = json.loads((await admin.ask(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)
        for reads in info["runtimeTable"].values():
            reads["lastColdReadTimeFormat"] = seconds_text(int(reads.pop("lastColdReadTimeMills")))
            reads["createTimeFormat"] = seconds_text(int(reads.pop("createTimeMills")))
        return json.dumps(info, indent="\t", ensure_ascii=False, separators=(",", ":"))

    for line in with_admin(namesrv, lambda admin: _from_all(admin, target, request)):
        click.echo(line)


@admin_command("updateColdDataFlowCtrGroupConfig")
@target_options("Every master of this cluster.")
@_group_option
@click.option(
    "-v", "--threshold", required=True, type=click.IntRange(0), help="Cold bytes that the group may read in 5 s."
)
def update_cold_flow_group(namesrv: str | None, target: Target, group: str, threshold: int) -> None:
    """Set the threshold of a group for reads of old messages."""
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.set_cold_threshold(address, group.strip(), threshold),
        done=lambda address: f"updateColdDataFlowCtrGroupConfig success, {address}",
    )


@admin_command("removeColdDataFlowCtrGroupConfig")
@target_options("Every master of this cluster.")
@_group_option
def remove_cold_flow_group(namesrv: str | None, target: Target, group: str) -> None:
    """Remove the threshold of a group for reads of old messages."""
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.remove_cold_threshold(address, group.strip()),
        done=lambda address: f"remove broker cold read threshold success, {address}",
    )
