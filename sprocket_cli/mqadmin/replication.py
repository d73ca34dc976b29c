"""`mqadmin` about replication between master and slaves."""

from collections.abc import Iterator
from typing import Final

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import SERVER_ADDRESS, json_option, print_found
from sprocket_cli.columns import millis_text
from sprocket_cli.mqadmin.options import admin_command, interval_option, repeat
from sprocket_cli.target import Target, target_options

_SLAVE_HEAD: Final = "%-32s  %-16s %16s %16s %16s %16s"
_SLAVE: Final = "%-32s  %-16d %16d %16.2f %16s %16d"
_SLAVE_NAMES: Final = (
    "#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere",
)  # fmt: skip


@admin_command("haStatus")
@target_options("Every master of this cluster.")
@interval_option
@json_option
async def ha_status(admin: AdminClient, target: Target, interval_s: float | None, as_json: bool) -> None:
    """Show how far the slaves of a master are, or how far a slave is."""

    def print_each(found: dict[str, HARuntimeInfo]) -> None:
        lines = (line for address, status in found.items() for line in ha_lines(address, status))
        print_found(found, lines, as_json=as_json)

    async def show() -> None:
        await ask_each(await target.addresses(admin), admin.ha_status, show=print_each)

    await repeat(show, interval_s)


def ha_lines(address: str, status: HARuntimeInfo) -> Iterator[str]:
    """Yield RocketMQ's lines: of a master, one per slave; of a slave, its own figures."""
    yield ""
    if not status.master:
        own = status.ha_client_runtime_info
        yield f"#MasterAddr\t{'null' if own.master_addr is None else own.master_addr}"
        yield f"#CommitLogMaxOffset\t{own.max_offset}"
        yield f"#TransferSpeed(KB/s)\t{own.transferred_byte_in_second / 1024:.2f}"
        yield f"#LastReadTime\t{millis_text(own.last_read_timestamp)}"
        yield f"#LastWriteTime\t{millis_text(own.last_write_timestamp)}"
        yield f"#MasterFlushOffset\t{own.master_flush_offset}"
        return
    yield f"#MasterAddr\t{address}"
    yield f"#MasterCommitLogMaxOffset\t{status.master_commit_log_max_offset}"
    yield f"#SlaveNum\t{len(status.ha_connection_info)}"
    yield f"#InSyncSlaveNum\t{status.in_sync_slave_nums}"
    yield _SLAVE_HEAD % _SLAVE_NAMES
    for slave in status.ha_connection_info:
        speed = slave.transferred_byte_in_second / 1024
        state = "OK" if slave.in_sync else "Fall Behind"
        yield _SLAVE % (slave.addr, slave.slave_ack_offset, slave.diff, speed, state, slave.transfer_from_where)


@admin_command("resetMasterFlushOffset")
@click.option("-b", "--brokerAddr", "broker", type=SERVER_ADDRESS, required=True, help="Address of the slave.")
@click.option("-o", "--offset", type=click.IntRange(0), required=True, help="Flushed offset of the master.")
async def reset_master_flush_offset(admin: AdminClient, broker: str, offset: int) -> None:
    """Set the flushed offset of the master that a slave remembers."""
    await admin.reset_master_flush_offset(broker, offset)
    click.echo(f"reset master flush offset to {offset} success")
