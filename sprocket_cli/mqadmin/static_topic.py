"""`mqadmin` about static topics: logical queues, numbered over all brokers, that can move between brokers.

Source: RocketMQ 5.3.3, `UpdateStaticTopicSubCommand`, `RemappingStaticTopicSubCommand`.  RocketMQ's -mf has no effect,
because its commands look for an option -f; here it does what its help says.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from sprocket.common.clock import SystemClock
from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage, namesrv_option, with_admin
from sprocket_cli.mqadmin.files import file_content, write_temporary
from sprocket_cli.mqadmin.options import topic_option

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.client.admin.static_topics import StaticTopics
    from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping
    from sprocket.static_topic.plan import TopicRemappingDetailWrapper

F = TypeVar("F", bound=Callable[..., Any])


class Change(NamedTuple):
    """What to do with a topic: the plan in `map_file`, or a new plan for the brokers and clusters."""

    topic: str
    brokers: list[str]
    clusters: list[str]
    map_file: Path | None
    is_forced: bool

    def plan_in_file(self) -> "TopicRemappingDetailWrapper | None":
        """Return the plan in `map_file`, None without one.  Raises WrongUsage."""
        from sprocket.static_topic.item_checks import MappingError
        from sprocket.static_topic.plan_file import read_plan

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

    @namesrv_option
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
        *args: Any,
        topic: str,
        brokers: str | None,
        clusters: str | None,
        map_file: Path | None,
        is_forced: bool,
        **given: Any,
    ) -> Any:
        from sprocket.client.arguments import check_topic
        from sprocket.client.errors import IllegalMessage

        name = topic.strip()
        try:
            check_topic(name)  # it is part of file names
        except IllegalMessage as error:
            raise WrongUsage(str(error)) from None
        change = Change(name, _names(brokers), _names(clusters), map_file, is_forced)
        if map_file is None and bool(change.brokers) == bool(change.clusters):
            raise click.UsageError("give exactly one of -b and -c")
        return command(*args, change=change, **given)

    return cast(F, with_change)


@click.command("updateStaticTopic", context_settings=HELP)
@_change_options
@click.option("-qn", "--totalQueueNum", "queue_count", type=click.IntRange(1), help="Queues on all brokers together.")
def update_static_topic(namesrv: str | None, change: Change, queue_count: int | None) -> None:
    """Create a static topic, or give it more queues.

    New queues go to the target brokers with the fewest.
    """
    plan = change.plan_in_file()
    if plan is None and queue_count is None:
        raise click.UsageError("-qn is missing: the number of queues on all brokers together")

    async def update(topics: "StaticTopics") -> None:
        planned = plan
        if planned is None:
            assert queue_count is not None
            targets = await topics.targets(change.brokers, change.clusters)
            configs = await topics.configs(change.topic)
            _keep_old(change.topic, configs)
            planned = await topics.creation(change.topic, queue_count, targets, configs)
            _keep(planned, is_after=True)
        await topics.create(change.topic, planned, force=change.is_forced and change.map_file is not None)

    _with_topics(namesrv, update)


@click.command("remappingStaticTopic", context_settings=HELP)
@_change_options
def remapping_static_topic(namesrv: str | None, change: Change) -> None:
    """Move the queues of a static topic, so that the target brokers lead equal shares of them.

    If the command stops half-way, repeat it with -mf and the file that ends in ".after".
    """
    plan = change.plan_in_file()

    async def remap(topics: "StaticTopics") -> None:
        planned = plan
        if planned is None:
            targets = await topics.targets(change.brokers, change.clusters)
            configs = await topics.configs(change.topic)
            if not configs:
                raise CommandFailed("No topic route to do the remapping")
            _keep_old(change.topic, configs)
            planned = await topics.remapping(change.topic, targets, configs)
            _keep(planned, is_after=True)
        await topics.remap(change.topic, planned, force=change.is_forced and change.map_file is not None)

    _with_topics(namesrv, remap)


def _with_topics(namesrv: str | None, work: "Callable[[StaticTopics], Awaitable[None]]") -> None:
    async def session(admin: "AdminClient") -> None:
        from sprocket.client.admin.static_topics import StaticTopics

        await work(StaticTopics.of(admin))

    with_admin(namesrv, session)


def _keep_old(topic: str, configs: "Mapping[str, TopicConfigAndQueueMapping]") -> None:
    from sprocket.static_topic.plan import current_plan

    _keep(current_plan(topic, configs, SystemClock().wall_ms()), is_after=False)


def _keep(plan: "TopicRemappingDetailWrapper", *, is_after: bool) -> None:
    """Write a plan into the temporary directory, and say where (`TopicQueueMappingUtils.writeToTemp`)."""
    from sprocket.static_topic.plan_file import file_name, plan_bytes

    path = write_temporary(file_name(plan, is_after=is_after), plan_bytes(plan))
    click.echo(f"The {'new' if is_after else 'old'} mapping data is written to file {path}")
