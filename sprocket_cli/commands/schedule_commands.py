"""`sprocket schedule`: messages that brokers send again and again."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from sprocket_cli.client_session import HELP, admin_session, json_option, parse_property, print_found
from sprocket_cli.columns import fitted

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

_POLICIES: Final = ("none", "last", "all")
_topic_option = click.option("--topic", required=True, help="Topic of the schedule.")


@click.group(context_settings=HELP)
def schedule() -> None:
    """Let brokers send messages at the times of a cron expression, or every N."""


@schedule.command("create")
@click.argument("name")
@click.argument("body")
@click.option("--topic", required=True, help="Topic of the messages; it must exist.")
@click.option("--cron", default="", help="Minute, hour, day of month, month, day of week: '0 5 * * *'.")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of --cron, such as Europe/Berlin.")
@click.option("--every", type=click.FloatRange(1), help="Seconds from one message to the next, in place of --cron.")
@click.option("--tag", default="", help="Tag of the messages.")
@click.option("--key", "keys", multiple=True, help="Key of the messages; repeatable.")
@click.option("--property", "properties", multiple=True, callback=parse_property, metavar="NAME=VALUE",
              help="Property; repeatable.")  # fmt: skip
@click.option("--delay", type=click.FloatRange(0), help="Seconds until consumers get a message that was sent.")
@click.option("--catch-up", type=click.Choice(_POLICIES), default="last", show_default=True,
              help="Which missed times are made up for.")  # fmt: skip
@click.option("--max-catch-up", type=click.IntRange(1), default=100, show_default=True, help="With --catch-up all.")
@click.option("--jitter", type=click.FloatRange(0), default=0.0, help="Seconds by which a message may be later.")
@click.option("--replace", is_flag=True, help="Change the schedule if it exists.")
@admin_session
async def create(
    admin: "AdminClient", name: str, body: str, topic: str, tag: str, keys: tuple[str, ...], properties: dict[str, str],
    delay: float | None, replace: bool, **rule: Any,
) -> None:  # fmt: skip
    """Let a broker send BODY to a topic again and again, as schedule NAME."""
    from sprocket.client.message import Message
    from sprocket.client.schedules import Schedules, schedule_of

    later = None if delay is None else timedelta(seconds=delay)
    message = Message(topic, body.encode(), tags=tag, keys=keys, properties=properties or None, delay=later)
    state = await Schedules(admin).put(schedule_of(name, message, **rule), replace=replace)
    click.echo(f"schedule {name} is at {state.broker_name}; next time: {_moment(state.next_millis)}")


@schedule.command("list")
@click.option("--cluster", help="Only of this cluster.")
@json_option
@admin_session
async def list_schedules(admin: "AdminClient", cluster: str | None, as_json: bool) -> None:
    """List schedules, with the broker that each is at."""
    from sprocket.client.schedules import Schedules, condition_text, rule_text

    found = await Schedules(admin).list(cluster)
    head = ("schedule", "topic", "rule", "broker", "next", "last", "fired", "state")
    rows = [
        (one.schedule.name, one.schedule.topic, rule_text(one.schedule), one.broker_name, _moment(one.next_millis),
         _moment(one.fired_millis), one.fired_total, condition_text(one))
        for one in found
    ]  # fmt: skip
    print_found(found, fitted(head, rows), as_json=as_json)


@schedule.command("show")
@click.argument("name")
@_topic_option
@json_option
@admin_session
async def show(admin: "AdminClient", name: str, topic: str, as_json: bool) -> None:
    """Show schedule NAME."""
    from sprocket.client.schedules import Schedules, condition_text, rule_text

    found = await Schedules(admin).get(name, topic)
    one = found.schedule
    fields = (
        ("schedule", one.name), ("topic", one.topic), ("rule", rule_text(one)), ("broker", found.broker_name),
        ("state", condition_text(found)), ("next", _moment(found.next_millis)), ("last", _moment(found.fired_millis)),
        ("fired", found.fired_total), ("refused", found.refused_total), ("catch-up", str(one.catch_up)),
        ("jitter", f"{one.jitter_millis} ms"), ("body", f"{len(one.body)} bytes"),
        *((f"property {key}", value) for key, value in one.properties.items()),
    )  # fmt: skip
    print_found(found, (f"{label}: {value}" for label, value in fields), as_json=as_json)


def _command(word: str, done: str, about: str) -> None:
    """Add a command that changes one schedule."""

    @schedule.command(word, help=about)
    @click.argument("name")
    @_topic_option
    @admin_session
    async def change(admin: "AdminClient", name: str, topic: str) -> None:
        from sprocket.client.schedules import Schedules

        await getattr(Schedules(admin), word)(name, topic)
        click.echo(f"schedule {name} {done}")


_command("pause", "is paused", "Pause schedule NAME: what is due meanwhile is not sent.")
_command("resume", "goes on", "Let schedule NAME go on, from now.")
_command("delete", "is deleted", "Delete schedule NAME.")
_command("trigger", "sent its message", "Send the message of schedule NAME now; its times stay as they are.")


def _moment(time_ms: int | None) -> str:
    return "-" if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
