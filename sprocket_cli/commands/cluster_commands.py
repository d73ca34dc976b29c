"""`sprocket topic`, `sprocket cluster`, `sprocket offset`: show and change a cluster."""

from typing import TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import HELP, admin_session, json_option, print_found, print_table
from sprocket_cli.columns import millis_text, perm_text
from sprocket_cli.commands.local_cluster_commands import down, status, up

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

# Queues on each broker: the default of RocketMQ's updateTopic.
_QUEUES: Final = 8


@click.group(context_settings=HELP)
def topic() -> None:
    """List, create and locate topics."""


@topic.command("list")
@click.option("--all", "show_all", is_flag=True, help="Include system, retry and dead-letter topics.")
@json_option
@admin_session
async def list_topics(admin: "AdminClient", show_all: bool, as_json: bool) -> None:
    """List the topics that applications send to."""
    from sprocket_cli.system_topics import without_system_topics

    known = await admin.topic_list()
    shown = known if show_all else without_system_topics(known, await admin.cluster_info())
    print_found(shown, shown, as_json=as_json)
    if known and not shown and not as_json:
        click.echo(f"There is no topic of an application yet; --all shows the {len(known)} system topics.", err=True)


@topic.command("create")
@click.argument("name")
@click.option(
    "--cluster", default="DefaultCluster", show_default=True, help="Create it on every master of this cluster."
)
@click.option("--queues", type=click.IntRange(1, 65535), help="Queues on each broker.  [default: 8]")
@click.option("--update", is_flag=True, help="If the topic exists, change its number of queues; needs --queues.")
@click.option("--force", is_flag=True, help="With --update: use fewer queues, although messages become unreachable.")
@json_option
@admin_session
async def create_topic(
    admin: "AdminClient", name: str, cluster: str, queues: int | None, update: bool, force: bool, as_json: bool
) -> None:
    """Create topic NAME, or change its number of queues.

    An existing topic is changed only with --update. With fewer queues than before, consumers can no longer read the
    messages of the removed queues; this also needs --force.
    """
    from sprocket_cli.commands import topic_change

    if update and queues is None:
        raise click.UsageError("--update needs --queues")
    if force and not update:
        raise click.UsageError("--force needs --update")
    count = queues or _QUEUES
    masters = await topic_change.masters_of(admin, cluster, name)
    if not update:
        topic_change.refuse_existing(masters, name)
    lost = await topic_change.unreachable(admin, masters, name, count)
    if not force:
        topic_change.refuse_shrinking(lost, masters, name, count, cluster)
    await topic_change.set_queues(admin, masters, name, count)
    for line in lost:
        click.echo(f"No longer readable on {line}", err=True)
    addresses = [each.address for each in masters]
    on = addresses[0] if len(addresses) == 1 else f"each of {', '.join(addresses)}"
    said = f"topic {name} has {topic_change.count_text(count, 'queue')} on {on}"
    print_found({"topic": name, "queues": count, "brokers": addresses}, [said], as_json=as_json)


@topic.command("grow")
@click.argument("name")
@click.option(
    "--queues", type=click.IntRange(1, 65535), required=True, help="Queues on each broker; of a static topic, in all."
)
@click.option("--skip-group", "skipped", multiple=True, metavar="GROUP", help="Do not wait for this group; repeatable.")
@click.option(
    "--max-lag", type=click.IntRange(0), default=1000, show_default=True,
    help="Begin when no group has more messages to read.",
)  # fmt: skip
@click.option(
    "--max-pause", type=click.FloatRange(0), default=30.0, show_default=True,
    help="Seconds that messages with a sharding key wait at most, while groups read to the end.",
)  # fmt: skip
@click.option(
    "--settle", "settle_s", type=click.FloatRange(0), default=60.0, show_default=True,
    help="Seconds after which no producer has an older route.",
)  # fmt: skip
@admin_session
async def grow_topic(
    admin: "AdminClient", name: str, queues: int, skipped: tuple[str, ...], max_lag: int, max_pause: float,
    settle_s: float,
) -> None:  # fmt: skip
    """Give topic NAME more queues, and keep the order of messages with the same sharding key.

    Sprocket's producers and proxies wait with such messages until groups have read what was sent before; other messages
    flow on. Producers of RocketMQ do not wait. If the command stops anywhere, repeat it.
    """
    from sprocket.client.admin.static_topics import StaticTopics
    from sprocket.client.admin.topic_growth import Limits, TopicGrowth

    limits = Limits(max_lag=max_lag, pause_s=max_pause, settle_s=settle_s)
    await TopicGrowth(admin, StaticTopics.of(admin), click.echo).grow(name, queues, limits, skipped)


@topic.command("route")
@click.argument("name")
@json_option
@admin_session
async def route(admin: "AdminClient", name: str, as_json: bool) -> None:
    """Show where the queues of topic NAME are."""
    found = await admin.topic_route(name)
    queues = {data.broker_name: data for data in found.queue_datas}
    rows: list[tuple[object, ...]] = []
    for broker in sorted(found.broker_datas, key=lambda data: data.broker_name):
        data = queues.get(broker.broker_name)
        if data is not None:
            address = broker.master_or_slave() or ""
            shape = (data.read_queue_nums, data.write_queue_nums, perm_text(data.perm))
            rows.append((broker.cluster or "", broker.broker_name, address, *shape))
    print_table(("cluster", "broker", "address", "readQueues", "writeQueues", "perm"), rows, as_json=as_json)


@click.group(context_settings=HELP)
def cluster() -> None:
    """List clusters; start, show and stop a cluster of local processes."""


for _command in (up, status, down):
    cluster.add_command(_command)


@cluster.command("list")
@json_option
@admin_session
async def list_clusters(admin: "AdminClient", as_json: bool) -> None:
    """List the brokers of every cluster."""
    from sprocket_cli.mqadmin.broker import members

    rows = [
        (*member[:4], member.runtime.get("brokerVersionDesc", ""), member.runtime.get("brokerActive", "false"))
        for member in await members(admin, None)
    ]
    print_table(("cluster", "broker", "id", "address", "version", "active"), rows, as_json=as_json)


@click.group(context_settings=HELP)
def offset() -> None:
    """Show offsets."""


@offset.command("show")
@click.argument("group", required=False)
@click.option("--topic", "topic_name", help="Only this topic; without GROUP, show its first and last offsets.")
@json_option
@admin_session
async def show_offsets(admin: "AdminClient", group: str | None, topic_name: str | None, as_json: bool) -> None:
    """Show the progress of consumer GROUP in every queue, or the first and last offsets of a topic."""
    if group is None and topic_name is None:
        raise click.UsageError("GROUP or --topic is needed")
    head: tuple[str, ...]
    rows: list[tuple[object, ...]]
    if group is not None:
        from sprocket_cli.mqadmin.consumer.consumer import queue_progress

        stats = await admin.consume_stats(group, topic_name)
        head = ("topic", "broker", "queue", "brokerOffset", "consumerOffset", "lag")
        rows = [row[:6] for row in queue_progress(stats)]
    else:
        extents = await admin.topic_stats(topic_name or "")
        head = ("topic", "broker", "queue", "minOffset", "maxOffset", "lastUpdated")
        rows = [
            (
                queue.topic, queue.broker_name, queue.queue_id, extent.min_offset, extent.max_offset,
                millis_text(extent.last_update_timestamp) if extent.last_update_timestamp > 0 else "",
            )
            for queue, extent in sorted(extents.offset_table.items())
        ]  # fmt: skip
    print_table(head, rows, as_json=as_json)
