"""`mqadmin` about topics."""

from collections.abc import Sequence
from pathlib import Path

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.rebalance.allocation import AllocateMessageQueueAveragely
from sprocket.remoting.addresses import names_at
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import CommandFailed, WrongUsage, json_option, print_found
from sprocket_cli.columns import millis_text, perm_text
from sprocket_cli.mqadmin.files import configs_in_file, file_option
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command, route_option, topic_option
from sprocket_cli.target import Target, target_options

_ROUTE = "%-45s %-32s %-50s %-10s %-11s %-5s"
_TOPICS_HEAD = "%-20s  %-48s  %-48s"
_TOPICS = "%-20s  %-64s  %-64s"
_STATUS_HEAD = "%-32s  %-4s  %-20s  %-20s    %s"
_STATUS = "%-32s  %-4d  %-20d  %-20d    %s"
_UNIT, _UNIT_SUB = 1, 2  # `TopicSysFlag`


def parse_attributes(text: str) -> dict[str, str]:
    """Return ``+a=b,-c`` as a map that keeps the signs (`AttributeParser.parseToMap`).  Raises WrongUsage."""
    attributes: dict[str, str] = {}
    for change in filter(None, text.split(",")):
        key, equals, value = change.partition("=")
        if "+" not in key if equals else "-" not in key:
            form = "+name=value" if equals else "-name"
            raise WrongUsage(f"attribute {change!r}: allowed is {form}")
        if key in attributes:
            raise WrongUsage(f"attribute {key} is given twice")
        attributes[key] = value
    return attributes


def topic_config_text(config: TopicConfig) -> str:
    """Return `config` as RocketMQ prints it (`TopicConfig.toString`)."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={java_form(config.order)}, attributes={java_form(config.attributes)}]"
    )


@admin_command("updateTopic")
@target_options("Create the topic on every master of this cluster.", broker_help="Create the topic on this broker.")
@topic_option
@click.option("-r", "--readQueueNums", "read_queues", type=click.IntRange(1), default=8, help="Queues to read.")
@click.option("-w", "--writeQueueNums", "write_queues", type=click.IntRange(1), default=8, help="Queues to write.")
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), default="6", help="2 write, 4 read, 6 both.")
@click.option("-o", "--order", type=bool, default=False, help="Ordered topic (true|false).")
@click.option("-u", "--unit", type=bool, default=False, help="Unit topic (true|false).")
@click.option("-s", "--hasUnitSub", "unit_sub", type=bool, default=False, help="Has unit subscriptions (true|false).")
@click.option("-a", "--attributes", default="", help="Attribute changes: +a=b,+c=d,-e.")
async def update_topic(
    admin: AdminClient, target: Target, topic: str, read_queues: int, write_queues: int, perm: str, order: bool,
    unit: bool, unit_sub: bool, attributes: str,
) -> None:  # fmt: skip
    """Create a topic, or change it."""
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=int(perm),
        topic_sys_flag=(_UNIT if unit else 0) | (_UNIT_SUB if unit_sub else 0),
        order=order,
        attributes=parse_attributes(attributes),
    )
    masters = await target.addresses(admin)

    def said(address: str) -> str:
        return f"create topic to {address} success."

    # RocketMQ prints orderConf before the success of a single broker, but after the successes of a cluster.
    await ask_each(masters, lambda address: admin.create_topic(address, config), done=None if target.broker else said)
    if order:
        await _set_order(admin, config, masters, target.broker)
    if target.broker is not None:
        click.echo(said(target.broker))
    click.echo(topic_config_text(config))


async def _set_order(admin: AdminClient, config: TopicConfig, masters: Sequence[str], broker: str | None) -> None:
    """Set the number of queues of an ordered topic for each broker name.  Raises CommandFailed for an unknown address.

    Source: RocketMQ 5.3.3, `CommandUtil.fetchBrokerNameByAddr`, which fails for an address that is not registered.
    """
    info = await admin.cluster_info()
    groups = {name: data.broker_addrs.values() for name, data in info.broker_addr_table.items()}
    names = {name for address in masters for name in await names_at(address, groups)}
    if not names:
        where = f"broker at {broker}" if broker else "master in the cluster"
        raise CommandFailed(f"the order of topic {config.topic_name} is not set: the name server knows no {where}")
    queues = dict.fromkeys(sorted(names), config.write_queue_nums)
    await admin.set_order_conf(config.topic_name, queues, whole=broker is None)
    value = ";".join(f"{name}:{number}" for name, number in queues.items())
    click.echo(f"set {'broker' if broker else 'cluster'} orderConf. isOrder=true, orderConf=[{value}]")


@admin_command("updateTopicList")
@target_options("Create the topics on every master of this cluster.", broker_help="Create the topics on this broker.")
@file_option("JSON list of TopicConfig.")
async def update_topics(admin: AdminClient, target: Target, path: Path) -> None:
    """Create or change the topics that are listed in a file.

    Their attributes are changes: "+name" and "-name".
    """
    configs = configs_in_file(path, TopicConfig)
    if configs:
        await ask_each(
            await target.addresses(admin),
            lambda address: admin.create_topics(address, configs),
            done=lambda address: f"submit batch of topic config to {address} success, please check the result later.",
        )


@admin_command("updateTopicPerm")
@target_options("Change the topic on every master of this cluster.", broker_help="Change the topic on this master.")
@topic_option
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), required=True, help="2 write, 4 read, 6 both.")
async def update_topic_perm(admin: AdminClient, target: Target, topic: str, perm: str) -> None:
    """Change the permission of a topic, and nothing else of it."""
    is_single, new_perm = target.broker is not None, int(perm)

    async def update(address: str) -> None:
        config = await admin.topic_config(address, topic)
        if config is None:
            raise CommandFailed(f"broker {address} has no topic {topic}")
        old_perm = config.perm
        if is_single and new_perm == old_perm:
            click.echo("new perm equals to the old one!")
            return
        config.perm = new_perm
        # Attributes are sent as changes: without any, the broker keeps those that the topic has.
        config.attributes = {}
        await admin.create_topic(address, config)
        click.echo(f"update topic perm from {old_perm} to {new_perm} in {address} success.")
        if is_single:
            click.echo(f"{topic_config_text(config)}.")

    await ask_each(await target.addresses(admin), update)


@admin_command("deleteTopic")
@topic_option
@click.option("-c", "--clusterName", "cluster", required=True, help="Delete the topic from this cluster.")
async def delete_topic(admin: AdminClient, topic: str, cluster: str) -> None:
    """Delete a topic from the brokers of a cluster and from the name servers."""
    masters = await admin.broker_addresses(cluster, masters_only=True)
    await ask_each(masters, lambda address: admin.delete_topic_at(address, topic))
    await admin.delete_route(topic, cluster)
    click.echo(f"delete topic [{topic}] from cluster [{cluster}] success.")
    click.echo(f"delete topic [{topic}] from NameServer success.")


@admin_command("topicList")
@click.option("-c", "--clusterModel", "with_cluster", is_flag=True, help="Show cluster and consumer groups, too.")
@json_option
async def topic_list(admin: AdminClient, with_cluster: bool, as_json: bool) -> None:
    """List all topics."""
    if not with_cluster:
        topics = await admin.topic_list()
        print_found(topics, topics, as_json=as_json)
        return
    rows = await topics_with_groups(admin)
    lines = [_TOPICS_HEAD % ("#Cluster Name", "#Topic", "#Consumer Group")]
    for cluster, topic, groups in rows:
        lines += [_TOPICS % (cluster[:20], topic[:64], group[:64]) for group in groups or [""]]
    document = [{"cluster": cluster, "topic": topic, "groups": groups} for cluster, topic, groups in rows]
    print_found(document, lines, as_json=as_json)


async def topics_with_groups(admin: AdminClient) -> list[tuple[str, str, list[str]]]:
    """Return cluster, topic and groups of every topic, without retry and dead-letter topics."""
    rows = []
    for topic in await admin.topic_list():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        cluster, groups = "", []
        try:
            route = await admin.topic_route(topic)
            cluster = (route.broker_datas[0].cluster if route.broker_datas else "") or ""
            groups = await admin.groups_of_topic(topic)
        except AdminError as error:
            # A topic without a route, such as the name server's own, still has a line: its response has a code.
            if error.code is None:
                click.echo(str(error), err=True)
        rows.append((cluster, topic, groups))
    return rows


@admin_command("topicRoute")
@topic_option
@click.option("-l", "--list", "as_list", is_flag=True, help="Print columns instead of JSON.")
async def topic_route(admin: AdminClient, topic: str, as_list: bool) -> None:
    """Show the route of a topic: its brokers and their queues."""
    route = await admin.topic_route(topic)
    click.echo("\n".join(route_lines(route)) if as_list else pretty(route).decode())


def route_lines(route: TopicRouteData) -> list[str]:
    """Return one line per broker, then the totals."""
    queues = {data.broker_name: data for data in route.queue_datas}
    lines = [_ROUTE % ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")]
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        data = queues.get(broker.broker_name)
        if data is not None:
            addresses = java_form(dict(sorted(broker.broker_addrs.items())))
            numbers = (data.read_queue_nums, data.write_queue_nums, data.perm)
            lines.append(_ROUTE % (broker.cluster, broker.broker_name, addresses, *numbers))
    read = sum(data.read_queue_nums for data in route.queue_datas)
    write = sum(data.write_queue_nums for data in route.queue_datas)
    return [*lines, "-" * 158, _ROUTE % ("Total:", len(queues), "", read, write, "")]


@admin_command("topicStatus")
@topic_option
@route_option
@json_option
async def topic_status(admin: AdminClient, topic: str, cluster: str | None, as_json: bool) -> None:
    """Show the minimum and maximum offset of each queue of a topic."""
    stats = await admin.topic_stats(topic, cluster)
    if not stats.offset_table:
        raise CommandFailed("Not found the topic stats info")
    rows = sorted(stats.offset_table.items())
    document = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": extent.min_offset,
            "maxOffset": extent.max_offset,
            "lastUpdateTimestamp": extent.last_update_timestamp,
        }
        for queue, extent in rows
    ]
    lines = [_STATUS_HEAD % ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")]
    for queue, extent in rows:
        last = millis_text(extent.last_update_timestamp) if extent.last_update_timestamp > 0 else ""
        lines.append(_STATUS % (queue.broker_name[:32], queue.queue_id, extent.min_offset, extent.max_offset, last))
    print_found(document, [*lines, f"\nTopic Put TPS: {stats.topic_put_tps}"], as_json=as_json)


@admin_command("topicClusterList")
@topic_option
@json_option
async def topic_cluster_list(admin: AdminClient, topic: str, as_json: bool) -> None:
    """List the clusters that have a topic."""
    brokers = {data.broker_name for data in (await admin.topic_route(topic)).broker_datas}
    table = (await admin.cluster_info()).cluster_addr_table
    clusters = sorted(cluster for cluster, names in table.items() if brokers & set(names))
    print_found(clusters, clusters, as_json=as_json)


@admin_command("allocateMQ")
@topic_option
@click.option("-i", "--ipList", "ips", required=True, help="Consumers, separated by commas.")
async def allocate_queues(admin: AdminClient, topic: str, ips: str) -> None:
    """Show, as JSON, how consumers would divide the queues of a topic."""
    queues = [queue for queue, _ in await MessageLookup(admin).queues(topic)]
    consumers = [each.strip() for each in ips.split(",")]
    divide = AllocateMessageQueueAveragely().allocate
    # RocketMQ's JSON has the fields of a queue by name.
    shares = {
        each: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in divide(each, queues, consumers)
        ]
        for each in consumers
    }
    click.echo(dumps({"result": shares}).decode())
