"""`mqadmin` about consumer groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.group import GroupRetryPolicy, SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.message.topic_names import dlq_topic, retry_topic
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import WrongUsage, json_option, option_set, print_found
from sprocket_cli.mqadmin.files import configs_in_file, file_option
from sprocket_cli.mqadmin.java_form import java_fields, java_form
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.mqadmin.topic import parse_attributes
from sprocket_cli.target import Target, target_options

# Flags, field of `SubscriptionGroupConfig`, type, default and help of the options of updateSubGroup.
_SETTINGS: Final[tuple[tuple[str, str, str, Any, object, str], ...]] = (
    ("-s", "--consumeEnable", "consume_enable", bool, True, "May consume (true|false)."),
    ("-m", "--consumeFromMinEnable", "consume_from_min_enable", bool, False, "May start at the minimum offset."),
    ("-d", "--consumeBroadcastEnable", "consume_broadcast_enable", bool, False, "May broadcast."),
    ("-o", "--consumeMessageOrderly", "consume_message_orderly", bool, False, "Consumes in order."),
    ("-q", "--retryQueueNums", "retry_queue_nums", click.IntRange(0), 1, "Retry queues."),
    ("-r", "--retryMaxTimes", "retry_max_times", int, 16, "Maximum number of retries."),
    ("-i", "--brokerId", "broker_id", click.IntRange(0), 0, "Consume from this broker id."),
    ("-w", "--whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", click.IntRange(0), 1,
     "Consume from this broker id when far behind."),
    ("-a", "--notifyConsumerIdsChanged", "notify_consumer_ids_changed_enable", bool, True, "Notify of new members."),
)  # fmt: skip
group_option = click.option("-g", "--groupName", "group", required=True, help="Consumer group.")


_settings_options = option_set(
    *(click.option(*names, type=type_, default=default, help=help_) for *names, type_, default, help_ in _SETTINGS)
)


def _retry_policy(text: str) -> GroupRetryPolicy:
    try:
        return loads(text.strip().encode(), GroupRetryPolicy)
    except ProtocolError as error:
        form = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}'
        raise WrongUsage(f"retry policy: {error}; allowed is JSON such as {form}") from None


@admin_command("updateSubGroup")
@target_options("Create the group on every master of this cluster.", broker_help="Create the group on this broker.")
@group_option
@_settings_options
@click.option("-p", "--groupRetryPolicy", "retry_policy", help="Delays of retries, as JSON.")
@click.option("--attributes", default="", help="Attribute changes: +a=b,+c=d,-e.")
async def update_group(
    admin: AdminClient, target: Target, group: str, retry_policy: str | None, attributes: str, **settings: Any
) -> None:
    """Create a consumer group, or change it.

    A setting that is not given gets its default, also in a group that exists.
    """
    config = SubscriptionGroupConfig(
        group,
        group_retry_policy=GroupRetryPolicy() if retry_policy is None else _retry_policy(retry_policy),
        attributes=parse_attributes(attributes),
        **settings,
    )
    await ask_each(
        await target.addresses(admin),
        lambda address: admin.create_group(address, config),
        done=lambda address: f"create subscription group to {address} success.",
        show=lambda _: click.echo(java_form(config)),
    )


@admin_command("updateSubGroupList")
@target_options("Create the groups on every master of this cluster.", broker_help="Create the groups on this broker.")
@file_option("JSON list of SubscriptionGroupConfig.")
async def update_groups(admin: AdminClient, target: Target, path: Path) -> None:
    """Create or change the consumer groups that are listed in a file, all or none."""
    configs = configs_in_file(path, SubscriptionGroupConfig)
    kind = "group" if target.broker else "subscription group"
    if configs:
        await ask_each(
            await target.addresses(admin),
            lambda address: admin.create_groups(address, configs),
            done=lambda address: f"submit batch of {kind} config to {address} success, please check the result later.",
        )


@admin_command("deleteSubGroup")
@target_options(
    "Delete the group, its retry topic and its dead-letter topic from this cluster.",
    broker_help="Delete the group from this broker.",
)
@group_option
@click.option("-r", "--removeOffset", "with_offsets", type=bool, default=False, help="Delete offsets (true|false).")
async def delete_group(admin: AdminClient, target: Target, group: str, with_offsets: bool) -> None:
    """Delete a consumer group."""
    place = f" in cluster [{target.cluster}]" if target.cluster else ""
    topics = (retry_topic(group), dlq_topic(group)) if target.cluster else ()

    async def delete(address: str) -> None:
        await admin.delete_group(address, group, with_offsets=with_offsets)
        click.echo(f"delete subscription group [{group}] from broker [{address}]{place} success.")
        for topic in topics:
            await admin.delete_topic_at(address, topic)

    await ask_each(await target.addresses(admin), delete)
    for topic in topics:
        await admin.delete_route(topic, target.cluster or "")


@admin_command("getConsumerConfig")
@group_option
@json_option
async def consumer_config(admin: AdminClient, group: str, as_json: bool) -> None:
    """Show the settings of a consumer group on each broker."""
    found = await _configs_by_broker(admin, group)
    document = [
        {"cluster": cluster, "brokerName": name, **dict(java_fields(config))} for cluster, name, config in found
    ]
    print_found(document, _config_lines(found), as_json=as_json)


def _config_lines(found: list[tuple[str | None, str, SubscriptionGroupConfig]]) -> Iterator[str]:
    for cluster, broker_name, config in found:
        yield f"{'=' * 29}{cluster}:{broker_name}{'=' * 29}"
        for name, value in java_fields(config):
            yield f"{name:<40}=  {'' if value is None else java_form(value)}"


async def _configs_by_broker(admin: AdminClient, group: str) -> list[tuple[str | None, str, SubscriptionGroupConfig]]:
    """Return cluster, broker name and configuration of a group, for each broker that has it."""
    info, found = await admin.cluster_info(), []
    clusters = {broker: cluster for cluster, brokers in info.cluster_addr_table.items() for broker in brokers}
    for name, data in sorted(info.broker_addr_table.items()):
        address = data.master_or_slave()
        table = (await admin.consumer_groups(address)).subscription_group_table if address else {}
        if group in table:
            found.append((clusters.get(name), name, table[group]))
    return found
