"""`mqadmin` about exports: topics, groups, configurations and figures of a cluster in files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import first_average
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from sprocket.remoting.version_names import version_text
from sprocket_cli.client_session import WrongUsage
from sprocket_cli.mqadmin.files import export_option, write_export
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.mqadmin.stats import day_sum
from sprocket_cli.target import Target, target_options

_CLOCK: Final = SystemClock()
_CONFIG_KEYS: Final = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
# Our name of a rate or number of a broker -> its name among the totals.
_TPS: Final = {
    "normalInTps": "totalNormalInTps", "normalOutTps": "totalNormalOutTps", "transInTps": "totalTransInTps",
    "scheduleInTps": "totalScheduleInTps",
}  # fmt: skip
_PUT_NUMS: Final = "TOPIC_PUT_NUMS"

cluster_option = click.option("-c", "--clusterName", "cluster", required=True, help="Cluster to export.")


@admin_command("exportMetadata")
@target_options("Every master of this cluster; with neither -t nor -g both tables.", broker_help="With -t or -g.")
@export_option
@click.option("-t", "--topic", "only_topics", is_flag=True, help="Only topics, as topic.json.")
@click.option("-g", "--subscriptionGroup", "only_groups", is_flag=True, help="Only groups, as subscriptionGroup.json.")
@click.option("-s", "--specialTopic", "with_retry", is_flag=True, help="Retry and dead-letter topics, too.")
async def export_metadata(
    admin: AdminClient, target: Target, folder: Path, only_topics: bool, only_groups: bool, with_retry: bool
) -> None:
    """Write the topics and groups of users to metadata.json.

    A topic that several masters have gets the sum of its queues; a group, of its retry queues.
    """
    if target.broker and not (only_topics or only_groups):
        raise WrongUsage("give -t or -g with -b")
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    if target.broker is None:
        content: dict[str, object] = {"exportTime": _CLOCK.wall_ms()}
        addresses = await target.addresses(admin)
        if not only_topics:
            content["subscriptionGroupTable"] = await _all_groups(admin, addresses)
        if only_topics or not only_groups:
            content["topicConfigTable"] = await _all_topics(admin, addresses, with_retry)
        write_export(folder, name, content)
    elif only_topics:
        write_export(folder, name, await admin.user_topics(target.broker, with_retry=with_retry))
    else:
        found = await admin.user_consumer_groups(target.broker)
        # What RocketMQ's SubscriptionGroupWrapper has.
        groups = {"dataVersion": found.data_version, "subscriptionGroupTable": found.subscription_group_table}
        write_export(folder, name, groups)


async def _all_topics(admin: AdminClient, addresses: list[str], with_retry: bool) -> dict[str, TopicConfig]:
    merged: dict[str, TopicConfig] = {}
    for address in addresses:
        table = (await admin.user_topics(address, with_retry=with_retry)).topic_config_table
        for name, config in table.items():
            if name in merged:
                config.write_queue_nums += merged[name].write_queue_nums
                config.read_queue_nums += merged[name].read_queue_nums
            merged[name] = config
    return dict(sorted(merged.items()))


async def _all_groups(admin: AdminClient, addresses: list[str]) -> dict[str, SubscriptionGroupConfig]:
    merged: dict[str, SubscriptionGroupConfig] = {}
    for address in addresses:
        for name, config in (await admin.user_consumer_groups(address)).subscription_group_table.items():
            if name in merged:
                config.retry_queue_nums += merged[name].retry_queue_nums
            merged[name] = config
    return dict(sorted(merged.items()))


@admin_command("exportConfigs")
@cluster_option
@export_option
async def export_configs(admin: AdminClient, cluster: str, folder: Path) -> None:
    """Write the main configuration of every master, and the size of the cluster, to configs.json."""
    configs = {}
    groups = await admin.broker_groups(cluster)
    masters = [master for master, _ in groups if master is not None]
    for master in masters:
        table = await admin.broker_config(master)
        configs[table.get("brokerName", master)] = {key: table[key] for key in _CONFIG_KEYS if key in table}
    scale = {
        "masterBrokerSize": len(masters),
        "namesrvSize": len(admin.name_servers),
        "slaveBrokerSize": sum(len(slaves) for _, slaves in groups),
    }
    write_export(folder, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


@admin_command("exportMetrics")
@cluster_option
@export_option
async def export_metrics(admin: AdminClient, cluster: str, folder: Path) -> None:
    """Write the figures of every master, and their totals, to metrics.json."""
    reports, totals = {}, dict.fromkeys(_TPS.values(), 0.0)
    numbers = dict.fromkeys(("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum"), 0)
    for address in await admin.broker_addresses(cluster, masters_only=True):
        name, report = await _report(admin, address)
        reports[name] = report
        quota = report["runtimeQuota"]
        for key, total in _TPS.items():
            totals[total] += quota["tps"][key]
        for key in numbers:
            numbers[key] += quota["oneDayNum"][key]
    content = {"evaluateReport": reports, "totalData": {"totalOneDayNum": numbers, "totalTps": totals}}
    write_export(folder, "metrics.json", content)


async def _report(admin: AdminClient, address: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return a broker's name and its figures, named as RocketMQ's `ExportMetricsCommand` does."""
    runtime = await admin.broker_runtime_info(address)
    config = await admin.broker_config(address)
    groups = (await admin.user_consumer_groups(address)).subscription_group_table
    topics = (await admin.user_topics(address, with_retry=False)).topic_config_table
    trans_tps, trans_day = await _puts(admin, address, TRANS_HALF_TOPIC)
    schedule_tps, schedule_day = await _puts(admin, address, SCHEDULE_TOPIC)
    quota = {
        "diskRatio": {key: runtime.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "groupSize": len(groups),
        "messageAverageSize": runtime.get("putMessageAverageSize"),
        "oneDayNum": {
            "normalOneDayInNum": _yesterday(runtime, "Put"),
            "normalOneDayOutNum": _yesterday(runtime, "Get"),
            "scheduleOneDayInNum": schedule_day,
            "transOneDayInNum": trans_day,
        },
        "topicSize": len(topics),
        "tps": {
            "normalInTps": first_average(runtime, "putTps"),
            "normalOutTps": first_average(runtime, "getTransferredTps"),
            "scheduleInTps": schedule_tps,
            "transInTps": trans_tps,
        },
    }
    # RocketMQ takes this key, whose default is the number of processors, for their number.
    environment = {
        "cpuNum": config.get("clientCallbackExecutorThreads"),
        "totalMemKBytes": runtime.get("totalMemKBytes"),
    }
    version = {
        "clientInfo": tuple(sorted(await _clients(admin, groups))),
        "rocketmqVersion": runtime.get("brokerVersionDesc"),
    }
    report: dict[str, dict[str, Any]] = {"runtimeEnv": environment, "runtimeQuota": quota, "runtimeVersion": version}
    return config.get("brokerName", address), report


async def _puts(admin: AdminClient, address: str, topic: str) -> tuple[float, int]:
    """Return the messages per second of the last minute, and those of a day; zeros for a topic without any."""
    try:
        stats = await GroupAdmin(admin).stats(address, _PUT_NUMS, topic)
    except AdminError as error:
        if error.code is None:
            raise
        return 0.0, 0
    return stats.stats_minute.tps, day_sum(stats)


async def _clients(admin: AdminClient, groups: Mapping[str, object]) -> set[str]:
    """Return language and version of the connected consumers: ``JAVA%V5_3_3``."""
    found = set()
    for group in groups:
        try:
            connected = await admin.consumer_connection(group)
        except AdminError as error:
            if error.code is None:
                raise
            continue
        found |= {f"{client.language}%{version_text(client.version)}" for client in connected.connection_set}
    return found


def _yesterday(runtime: Mapping[str, str], way: str) -> int:
    """Return the number of messages put or got between the last two midnights."""
    now, before = (runtime.get(f"msg{way}Total{day}Morning", "0") for day in ("Today", "Yesterday"))
    return int(now) - int(before)
