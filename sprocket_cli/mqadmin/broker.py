"""`mqadmin` about brokers."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.stats import figure, first_average
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import json_option, print_found
from sprocket_cli.mqadmin.options import admin_command, interval_option, repeat
from sprocket_cli.target import Target, target_options

_CLOCK: Final = SystemClock()
_CLUSTER = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s"
_CLUSTER_HEAD = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s"
_CLUSTER_NAMES = (
    "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)", "#Timer(Progress)",
    "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED",
)  # fmt: skip
_MORE = "%-16s  %-32s %14d %14d %14d %14d"
_MORE_HEAD = "%-16s  %-32s %14s %14s %14s %14s"
_MORE_NAMES = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")


class Member(NamedTuple):
    """One broker of a cluster, with the figures that it reports; `runtime` is empty if it does not respond."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str]


async def members(admin: AdminClient, cluster: str | None) -> list[Member]:
    """Return every broker of `cluster`, or of all clusters if that is None."""
    info = await admin.cluster_info()
    found = []
    for name in [cluster] if cluster else sorted(info.cluster_addr_table):
        for broker_name in sorted(info.cluster_addr_table.get(name, [])):
            data = info.broker_addr_table.get(broker_name)
            for broker_id, address in sorted(data.broker_addrs.items()) if data else ():
                try:
                    runtime = await admin.broker_runtime_info(address)
                except AdminError as error:
                    click.echo(str(error), err=True)
                    runtime = {}
                found.append(Member(name, broker_name, broker_id, address, runtime))
    return found


@admin_command("clusterList")
@click.option("-m", "--moreStats", "more", is_flag=True, help="Show messages in and out, yesterday and today.")
@interval_option
@click.option("-c", "--clusterName", "cluster", help="Only this cluster.")
@json_option
async def cluster_list(
    admin: AdminClient, more: bool, interval_s: float | None, cluster: str | None, as_json: bool
) -> None:
    """List the brokers of each cluster, with their message rates."""

    async def show() -> None:
        found = await members(admin, cluster)
        lines = more_lines(found) if more else cluster_lines(found, _CLOCK.wall_ms())
        print_found([member._asdict() for member in found], lines, as_json=as_json)

    await repeat(show, interval_s)


def cluster_lines(found: list[Member], now_ms: int) -> list[str]:
    """Return RocketMQ's columns, one line per broker."""
    return [_CLUSTER_HEAD % _CLUSTER_NAMES, *(_cluster_line(member, now_ms) for member in found)]


def _cluster_line(member: Member, now_ms: int) -> str:
    table = member.runtime
    put = f"{first_average(table, 'putTps'):9.2f}({_load(table, 'send')})"
    got = f"{first_average(table, 'getTransferredTps'):9.2f}({_load(table, 'pull')}|{_load(table, 'ack', 'N')})"
    timer = (
        f"{figure(table, 'timerReadBehind'):.0f}-{figure(table, 'timerOffsetBehind'):.0f}"
        f"({figure(table, 'timerCongestNum') / 10000:.1f}w, {figure(table, 'timerEnqueueTps'):.1f}, "
        f"{figure(table, 'timerDequeueTps'):.1f})"
    )
    earliest = table.get("earliestMessageTimeStamp", "")
    hours = (now_ms - int(earliest)) / 3_600_000 if earliest else 0.0
    return _CLUSTER % (
        *member[:4], table.get("brokerVersionDesc", ""), put, got, timer, table.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}", f"{figure(table, 'commitLogDiskRatio'):.4f}", table.get("brokerActive", "false"),
    )  # fmt: skip


def more_lines(found: list[Member]) -> list[str]:
    """Return the messages in and out, yesterday and today, one line per broker."""
    lines = [_MORE_HEAD % _MORE_NAMES]
    for member in found:
        counts = []
        for later, earlier in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning")):
            for way in ("Put", "Get"):
                now = figure(member.runtime, f"msg{way}Total{later}")
                counts.append(now - figure(member.runtime, f"msg{way}Total{earlier}"))
        lines.append(_MORE % (member.cluster, member.broker_name, *counts))
    return lines


def _load(table: Mapping[str, str], pool: str, default: str = "") -> str:
    size = table.get(f"{pool}ThreadPoolQueueSize", default)
    wait_ms = table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", default)
    return f"{size},{wait_ms}ms"


@admin_command("brokerStatus")
@target_options()
@json_option
async def broker_status(admin: AdminClient, target: Target, as_json: bool) -> None:
    """Show the runtime figures of a broker."""

    def show(tables: dict[str, dict[str, str]]) -> None:
        lines = (
            f"{key:<32}: {value}" if target.broker else f"{address:<24} {key:<32}: {value}"
            for address, table in tables.items()
            for key, value in sorted(table.items())
        )
        print_found(tables, lines, as_json=as_json)

    await ask_each(await target.addresses(admin, masters_only=False), admin.broker_runtime_info, show=show)
