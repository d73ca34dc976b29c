"""`mqadmin` about the watch over all consumer groups.

Source: RocketMQ 5.3.3, `MonitorService`, `DefaultMonitorListener`.  RocketMQ writes the lines to its log.
Unlike there, the first round does not wait for 20 s.  OFFSET_MOVED_EVENT is not consumed: our brokers send none.
"""

from typing import Final, NamedTuple

import click

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo
from sprocket.remoting.bodies.stats import OffsetWrapper
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from sprocket_cli.client_session import failure_text
from sprocket_cli.mqadmin.consumer.running_info_text import stuck, subscribe_alike
from sprocket_cli.mqadmin.options import admin_command, repeat

_CLOCK: Final = SystemClock()
_ROUND_S: Final = 60.0
_PREFIX: Final = "[MONITOR] "
_NOTIFY: Final = f"{_PREFIX} [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: "


class Backlog(NamedTuple):
    """What a group has still to consume of a topic."""

    group: str
    topic: str
    total: int
    max_of_queue: int
    delay_ms: int  # max over the queues: from the last consumed message to the newest one

    def __str__(self) -> str:
        """Return RocketMQ's text (`UndoneMsgs.toString`)."""
        return (
            f"UndoneMsgs [consumerGroup={self.group}, topic={self.topic}, undoneMsgsTotal={self.total}, "
            f"undoneMsgsSingleMQ={self.max_of_queue}, undoneMsgsDelayTimeMills={self.delay_ms}]"
        )


@admin_command("startMonitoring")
async def start_monitoring(admin: AdminClient) -> None:
    """Show the backlog and the problems of all connected consumer groups, every minute until Ctrl-C.

    A server that does not respond is named on standard error; the next round asks it again.
    """

    async def show() -> None:
        try:
            await _round(admin)
        except SprocketError as error:
            click.echo(failure_text(error), err=True)

    await repeat(show, _ROUND_S)


async def _round(admin: AdminClient) -> None:
    click.echo(f"{_PREFIX}{'=' * 41}beginRound")
    for topic in await admin.topic_list():
        if topic.startswith(RETRY_PREFIX):
            for line in await _group_lines(admin, topic.removeprefix(RETRY_PREFIX)):
                click.echo(line)
    click.echo(f"{_PREFIX}{'=' * 41}endRound")


async def _group_lines(admin: AdminClient, group: str) -> list[str]:
    """Return the lines about a group; none for a group without connected consumers."""
    groups, lines = GroupAdmin(admin), []
    try:
        client_ids = sorted(each.client_id for each in (await groups.consumers(group)).connection_set)
    except AdminError as error:
        _show_unreachable(error)
        return []
    try:
        lines = await _backlog_lines(admin, group)
    except AdminError as error:
        _show_unreachable(error)
    infos: dict[str, ConsumerRunningInfo[str]] = {}
    for client_id in client_ids:
        try:
            infos[client_id] = await admin.running_info(group, client_id)
        except AdminError:
            continue  # it has just ended, or it sends no reports
    return lines + notices(group, infos, _CLOCK.wall_ms())


def _show_unreachable(error: AdminError) -> None:
    """Name a server that does not respond; a refusal, such as that of a group without members, is no news."""
    if error.code is None:
        click.echo(str(error), err=True)


async def _backlog_lines(admin: AdminClient, group: str) -> list[str]:
    """Return a line for each topic that the group consumes."""
    table = (await admin.consume_stats(group)).offset_table
    lines = []
    for topic in sorted({queue.topic for queue in table}):
        offsets = {queue: each for queue, each in table.items() if queue.topic == topic}
        lines.append(f"{_PREFIX}reportUndoneMsgs: {await _backlog(admin, group, topic, offsets)}")
    return lines


def notices(group: str, infos: dict[str, ConsumerRunningInfo[str]], now_ms: int) -> list[str]:
    """Return a text for members that subscribe differently, and one for each member with queues that seem stuck.

    Such a queue has a line of its own; as in RocketMQ, only the first line of a member begins with the group.
    """
    lines = []
    if infos and not subscribe_alike(list(infos.values()), now_ms):
        lines.append(f"{_NOTIFY}{group}, Subscription different")
    for client_id, info in infos.items():
        if stuck_lines := stuck(client_id, info, now_ms):
            lines.append(f"{_NOTIFY}{group}, ClientId: {client_id}, " + "\n".join(stuck_lines))
    return lines


async def _backlog(admin: AdminClient, group: str, topic: str, offsets: dict[MessageQueue, OffsetWrapper]) -> Backlog:
    lookup, delays_ms = MessageLookup(admin), [0]
    addresses = dict(await lookup.queues(topic))
    for queue, each in offsets.items():
        if each.last_timestamp > 0 and each.broker_offset > 0 and queue in addresses:
            newest, _ = await lookup.messages(queue, addresses[queue], each.broker_offset - 1, max_messages=1)
            delays_ms += [message.store_timestamp_ms - each.last_timestamp for message in newest]
    behind = [each.broker_offset - each.consumer_offset for each in offsets.values()]
    return Backlog(group, topic, sum(each for each in behind if each > 0), max([0, *behind]), max(delays_ms))
