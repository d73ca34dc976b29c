"""`mqadmin` about consumer groups."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import WrongUsage, admin_command, json_option, print_found, with_admin
from sprocket_cli.columns import java_map
from sprocket_cli.mqadmin.files import configs_in_file, file_option
from sprocket_cli.mqadmin.options import Target, ask_each, target_options
from sprocket_cli.mqadmin.topic import parse_attributes

if TYPE_CHECKING:
    from msgspec import Struct

    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.remoting.bodies.group import GroupRetryPolicy, SubscriptionGroupConfig

group_option = click.option("-g", "--groupName", "group", required=True, help="Consumer group.")


def java_text(value: object) -> str:
    """Return a value as Java prints it; a struct as Guava's `MoreObjects.toStringHelper` does."""
    import msgspec

    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return java_map((key, java_text(each)) for key, each in value.items())
    if isinstance(value, tuple):
        return f"[{', '.join(map(java_text, value))}]"
    if isinstance(value, msgspec.Struct):
        fields = ", ".join(f"{name}={java_text(each)}" for name, each in _fields(value))
        return f"{type(value).__name__}{{{fields}}}"
    return str(value)


def _fields(value: "Struct") -> Iterator[tuple[str, object]]:
    """Yield RocketMQ's names and the values of a struct's fields, in the order of their declaration."""
    import msgspec

    for field in msgspec.structs.fields(type(value)):
        yield field.encode_name, getattr(value, field.name)


def _retry_policy(text: str) -> "GroupRetryPolicy":
    from sprocket.common.errors import ProtocolError
    from sprocket.remoting.bodies.group import GroupRetryPolicy
    from sprocket.remoting.codec.fastjson import loads

    try:
        return loads(text.strip().encode(), GroupRetryPolicy)
    except ProtocolError as error:
        form = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}'
        raise WrongUsage(f"retry policy: {error}; allowed is JSON such as {form}") from None


@admin_command("updateSubGroup")
@target_options("Create the group on every master of this cluster.", broker_help="Create the group on this broker.")
@group_option
@click.option("-s", "--consumeEnable", "consume_enable", type=bool, default=True, help="May consume (true|false).")
@click.option(
    "-m", "--consumeFromMinEnable", "from_min", type=bool, default=False, help="May start at the minimum offset."
)
@click.option("-d", "--consumeBroadcastEnable", "broadcast", type=bool, default=False, help="May broadcast.")
@click.option("-o", "--consumeMessageOrderly", "orderly", type=bool, default=False, help="Consumes in order.")
@click.option("-q", "--retryQueueNums", "retry_queues", type=click.IntRange(0), default=1, help="Retry queues.")
@click.option("-r", "--retryMaxTimes", "retry_max", type=int, default=16, help="Maximum number of retries.")
@click.option("-p", "--groupRetryPolicy", "retry_policy", help="Delays of retries, as JSON.")
@click.option("-i", "--brokerId", "broker_id", type=click.IntRange(0), default=0, help="Consume from this broker id.")
@click.option(
    "-w",
    "--whichBrokerWhenConsumeSlowly",
    "slow_broker_id",
    type=click.IntRange(0),
    default=1,
    help="Consume from this broker id when far behind.",
)
@click.option("-a", "--notifyConsumerIdsChanged", "notify", type=bool, default=True, help="Notify of new members.")
@click.option("--attributes", default="", help="Attribute changes: +a=b,+c=d,-e.")
def update_group(
    namesrv: str | None,
    target: Target,
    group: str,
    consume_enable: bool,
    from_min: bool,
    broadcast: bool,
    orderly: bool,
    retry_queues: int,
    retry_max: int,
    retry_policy: str | None,
    broker_id: int,
    slow_broker_id: int,
    notify: bool,
    attributes: str,
) -> None:
    """Create a consumer group, or change it.

    A setting that is not given gets its default, also in a group that exists.
    """
    from sprocket.remoting.bodies.group import GroupRetryPolicy, SubscriptionGroupConfig

    config = SubscriptionGroupConfig(
        group_name=group.strip(),
        consume_enable=consume_enable,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max,
        group_retry_policy=GroupRetryPolicy() if retry_policy is None else _retry_policy(retry_policy),
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker_id,
        notify_consumer_ids_changed_enable=notify,
        attributes=parse_attributes(attributes.strip()),
    )
    ask_each(
        namesrv,
        target,
        lambda admin, address: admin.create_group(address, config),
        done=lambda address: f"create subscription group to {address} success.",
        show=lambda _: click.echo(java_text(config)),
    )


@admin_command("updateSubGroupList")
@target_options("Create the groups on every master of this cluster.", broker_help="Create the groups on this broker.")
@file_option("JSON list of SubscriptionGroupConfig.")
def update_groups(namesrv: str | None, target: Target, path: Path) -> None:
    """Create or change the consumer groups that are listed in a file, all or none."""
    from sprocket.remoting.bodies.group import SubscriptionGroupConfig

    configs = configs_in_file(path, SubscriptionGroupConfig)
    kind = "group" if target.broker else "subscription group"
    if configs:
        ask_each(
            namesrv,
            target,
            lambda admin, address: admin.create_groups(address, configs),
            done=lambda address: f"submit batch of {kind} config to {address} success, please check the result later.",
        )


@admin_command("deleteSubGroup")
@target_options(
    "Delete the group, its retry topic and its dead-letter topic from this cluster.",
    broker_help="Delete the group from this broker.",
)
@group_option
@click.option("-r", "--removeOffset", "with_offsets", type=bool, default=False, help="Delete offsets (true|false).")
def delete_group(namesrv: str | None, target: Target, group: str, with_offsets: bool) -> None:
    """Delete a consumer group."""
    group = group.strip()
    place = f" in cluster [{target.cluster}]" if target.cluster else ""

    async def delete(admin: "AdminClient") -> None:
        for address in await target.addresses(admin, masters_only=True):
            await admin.delete_group(address, group, with_offsets=with_offsets)
            click.echo(f"delete subscription group [{group}] from broker [{address}]{place} success.")
        if target.cluster:
            await admin.delete_group_topics(group, target.cluster)

    with_admin(namesrv, delete)


@admin_command("getConsumerConfig")
@group_option
@json_option
def consumer_config(namesrv: str | None, group: str, as_json: bool) -> None:
    """Show the settings of a consumer group on each broker."""
    found = with_admin(namesrv, lambda admin: _configs_by_broker(admin, group.strip()))
    document = [{"cluster": cluster, "brokerName": name, **dict(_fields(config))} for cluster, name, config in found]
    print_found(document, _config_lines(found), as_json=as_json)


def _config_lines(found: "list[tuple[str | None, str, SubscriptionGroupConfig]]") -> Iterator[str]:
    for cluster, broker_name, config in found:
        yield f"{'=' * 29}{cluster}:{broker_name}{'=' * 29}"
        for name, value in _fields(config):
            yield f"{name:<40}=  {'' if value is None else java_text(value)}"


async def _configs_by_broker(
    admin: "AdminClient", group: str
) -> "list[tuple[str | None, str, SubscriptionGroupConfig]]":
    """Return cluster, broker name and configuration of a group, for each broker that has it."""
    info, found = await admin.cluster_info(), []
    clusters = {broker: cluster for cluster, brokers in info.cluster_addr_table.items() for broker in brokers}
    for name, data in sorted(info.broker_addr_table.items()):
        address = data.master_or_slave()
        table = (await admin.consumer_groups(address)).subscription_group_table if address else {}
        if group in table:
            found.append((clusters.get(name), name, table[group]))
    return found
