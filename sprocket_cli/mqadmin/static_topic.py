"""`mqadmin` about static topics: logical queues, numbered over all brokers, that can move between brokers.

Source: RocketMQ 5.3.3, `UpdateStaticTopicSubCommand`, `RemappingStaticTopicSubCommand`.  RocketMQ's -mf has no effect,
because its commands look for an option -f; here it does what its help says.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.client.arguments import check_topic
from sprocket.client.errors import IllegalMessage
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.plan import TopicRemappingDetailWrapper, current_plan
from sprocket.static_topic.plan_file import file_name, plan_bytes, read_plan
from sprocket_cli.client_session import CommandFailed, WrongUsage, wrong_usage
from sprocket_cli.mqadmin.files import file_content, write_temporary
from sprocket_cli.mqadmin.options import admin_command, topic_option

F = TypeVar("F", bound=Callable[..., Any])


class Change(NamedTuple):
    """What to do with a topic: the plan in `map_file`, or a new plan for the brokers and clusters."""

    topic: str
    brokers: list[str]
    clusters: list[str]
    map_file: Path | None
    is_forced: bool

    def plan_in_file(self) -> TopicRemappingDetailWrapper | None:
        """Return the plan in `map_file`, None without one.  Raises WrongUsage."""
        if self.map_file is None:
            return None
        try:
            return read_plan(file_content(self.map_file))
        except MappingError as error:
            raise WrongUsage(f"{self.map_file}: {error}") from None


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _change_options(command: F) -> F:
    """Add the options that both commands have; the command receives them as one `Change` in `change`."""

    @topic_option
    @click.option("-b", "--brokers", metavar="NAME,...", help="Target brokers by name, separated by commas.")
    @click.option("-c", "--clusters", metavar="NAME,...", help="Clusters whose brokers are targets.")
    @click.option(
        "-mf", "--mapFile", "map_file", type=click.Path(path_type=Path), help="Carry out the plan in this file (again)."
    )
    @click.option(
        "-fr", "--forceReplace", "is_forced", type=bool, default=False,
        help="With -mf: overwrite the mappings that brokers have (true|false).",
    )  # fmt: skip
    @wraps(command)
    def with_change(
        *args: Any, topic: str, brokers: str | None, clusters: str | None, map_file: Path | None, is_forced: bool,
        **given: Any,
    ) -> Any:  # fmt: skip
        with wrong_usage(IllegalMessage):
            check_topic(topic)  # it is part of file names
        change = Change(topic, _names(brokers), _names(clusters), map_file, is_forced)
        if map_file is None and bool(change.brokers) == bool(change.clusters):
            raise click.UsageError("give exactly one of -b and -c")
        return command(*args, change=change, **given)

    return cast(F, with_change)


@admin_command("updateStaticTopic")
@_change_options
@click.option("-qn", "--totalQueueNum", "queue_count", type=click.IntRange(1), help="Queues on all brokers together.")
async def update_static_topic(admin: AdminClient, change: Change, queue_count: int | None) -> None:
    """Create a static topic, or give it more queues.

    New queues go to the target brokers with the fewest.
    """
    plan, topics = change.plan_in_file(), StaticTopics.of(admin)
    if plan is None:
        if queue_count is None:
            raise click.UsageError("-qn is missing: the number of queues on all brokers together")
        targets = await topics.targets(change.brokers, change.clusters)
        configs = await topics.configs(change.topic)
        _keep_old(change.topic, configs)
        plan = await topics.creation(change.topic, queue_count, targets, configs)
        _keep(plan, is_after=True)
    await topics.create(change.topic, plan, force=change.is_forced and change.map_file is not None)


@admin_command("remappingStaticTopic")
@_change_options
async def remapping_static_topic(admin: AdminClient, change: Change) -> None:
    """Move the queues of a static topic, so that the target brokers lead equal shares of them.

    If the command stops half-way, repeat it with -mf and the file that ends in ".after".
    """
    plan, topics = change.plan_in_file(), StaticTopics.of(admin)
    if plan is None:
        targets = await topics.targets(change.brokers, change.clusters)
        configs = await topics.configs(change.topic)
        if not configs:
            raise CommandFailed("No topic route to do the remapping")
        _keep_old(change.topic, configs)
        plan = await topics.remapping(change.topic, targets, configs)
        _keep(plan, is_after=True)
    await topics.remap(change.topic, plan, force=change.is_forced and change.map_file is not None)


def _keep_old(topic: str, configs: Mapping[str, TopicConfigAndQueueMapping]) -> None:
    _keep(current_plan(topic, configs, SystemClock().wall_ms()), is_after=False)


def _keep(plan: TopicRemappingDetailWrapper, *, is_after: bool) -> None:
    """Write a plan into the temporary directory, and say where (`TopicQueueMappingUtils.writeToTemp`)."""
    path = write_temporary(file_name(plan, is_after=is_after), plan_bytes(plan))
    click.echo(f"The {'new' if is_after else 'old'} mapping data is written to file {path}")
