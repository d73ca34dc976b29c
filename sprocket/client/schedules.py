"""Schedules of a cluster: messages that brokers send again and again.  See docs/schedules.md.

A schedule is at one of the masters that have its topic: the one that has it already, else one by topic and name.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from zlib import crc32

from msgspec.structs import replace as changed

from sprocket.client import arguments
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import none_if
from sprocket.client.errors import IllegalArgument
from sprocket.client.message import Message
from sprocket.client.send.send_request import properties_text
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.schedule import CatchUp, Schedule, ScheduleState
from sprocket.remoting.bodies.topic import PERM_WRITE
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.namespaces import with_namespace, without_namespace

# Properties that each message of a schedule gets from its broker.
_NOT_KEPT = frozenset({names.UNIQ_KEY, names.WAIT})


def schedule_of(
    name: str,
    message: Message,
    *,
    cron: str = "",
    every: timedelta | float | None = None,
    tz: str = "UTC",
    catch_up: CatchUp | str = CatchUp.LAST,
    max_catch_up: int = 100,
    jitter: timedelta | float = 0,
) -> Schedule:
    """Return a schedule that sends `message`.  Raises IllegalArgument, or IllegalMessage for the message."""
    if bool(cron) == (every is not None):
        raise IllegalArgument("a schedule has one of cron and every; leave the other one out")
    if catch_up not in tuple(CatchUp):
        raise IllegalArgument(f"catch_up is {catch_up!r}; allowed are {', '.join(CatchUp)}")
    properties = names.parse(properties_text(message, "0"))
    return Schedule(
        name=arguments.text("name", name), topic=message.topic, body=message.body,
        properties={key: value for key, value in properties.items() if key not in _NOT_KEPT},
        cron=arguments.text("cron", cron), time_zone=arguments.text("tz", tz),
        every_millis=0 if every is None else round(arguments.seconds("every", every) * 1000),
        catch_up=CatchUp(catch_up), max_catch_up=arguments.whole("max_catch_up", max_catch_up, 1),
        jitter_millis=round(arguments.seconds("jitter", jitter) * 1000),
    )  # fmt: skip


class Schedules:
    """Schedules of one cluster, with topics in `namespace`.  Every method raises AdminError.

    `topic` is that of the schedule: who may send to it may ask for its schedules.
    """

    def __init__(self, admin: AdminClient, namespace: str = "") -> None:
        self._admin = admin
        self._namespace = namespace

    async def put(self, schedule: Schedule, *, replace: bool = True) -> ScheduleState:
        """Set a schedule, and return how it is then.  One that is the same already goes on as it is.

        Without `replace` a name that exists is refused.
        """
        whole = changed(schedule, topic=self._whole(schedule.topic))
        masters = await self._masters(whole.topic)
        found = await self._find(masters, whole.topic, whole.name)
        broker = next(iter(found), None) or _chosen(masters, whole)
        await self._admin.set_schedule(masters[broker], whole, replace=replace)
        state = await self._admin.schedule(masters[broker], whole.topic, whole.name)
        return self._bare(state or ScheduleState(schedule=whole))

    async def list(self, cluster: str | None = None) -> "list[ScheduleState]":
        """Return how each schedule of `cluster` is, None: of all clusters; those that the caller may list."""
        states: list[ScheduleState] = []
        for broker in await self._admin.masters(cluster):
            states += map(self._bare, await self._admin.schedules(broker))
        return sorted(states, key=lambda state: (state.schedule.name, state.broker_name))

    async def get(self, name: str, topic: str) -> ScheduleState:
        """Return how a schedule is."""
        return self._bare((await self._one(name, topic))[1])

    async def pause(self, name: str, topic: str) -> None:
        """Pause a schedule: what is due until `resume` is not sent."""
        address, state = await self._one(name, topic)
        await self._admin.pause_schedule(address, state.schedule.topic, state.schedule.name, paused=True)

    async def resume(self, name: str, topic: str) -> None:
        """Let a paused schedule go on, from now."""
        address, state = await self._one(name, topic)
        await self._admin.pause_schedule(address, state.schedule.topic, state.schedule.name, paused=False)

    async def delete(self, name: str, topic: str) -> None:
        """Delete a schedule, at every broker that has it."""
        whole, masters = self._whole(topic), await self._masters(self._whole(topic))
        found = await self._find(masters, whole, name, allows_several=True)
        if not found:
            raise _missing(name, topic)
        for broker in found:
            await self._admin.delete_schedule(masters[broker], whole, name)

    async def trigger(self, name: str, topic: str) -> None:
        """Send the message of a schedule now, also of a paused one; its times stay as they are."""
        address, state = await self._one(name, topic)
        await self._admin.trigger_schedule(address, state.schedule.topic, state.schedule.name)

    async def move_away(self, broker: str, address: str) -> tuple[int, int]:
        """Move all schedules that a master has to others that take messages of their topics.

        Return how many moved, and how many stay because there is no other.  A repeated call finishes what a stopped
        one left.  No fire time is lost or repeated: a schedule rests at one broker before it begins at the next.
        """
        moved = stayed = 0
        for state in await self._admin.schedules(address):
            one = state.schedule
            try:
                masters = await self._masters(one.topic)
            except AdminError:  # the topic is gone, or nobody takes its messages
                masters = {}
            masters.pop(broker, None)
            if not masters:
                stayed += 1
                continue
            await self._admin.pause_schedule(address, one.topic, one.name, paused=state.is_paused, moving=True)
            last = await self._admin.schedule(address, one.topic, one.name)
            if last is not None and not await self._find(masters, one.topic, one.name, allows_several=True):
                target = masters[_chosen(masters, one)]
                await self._admin.set_schedule(target, one, like=last)
            await self._admin.delete_schedule(address, one.topic, one.name)
            moved += 1
        return moved, stayed

    # Where schedules are

    async def _masters(self, topic: str) -> dict[str, str]:
        """Return the address of each master that takes messages of `topic`, by broker name."""
        route = await none_if(ResponseCode.TOPIC_NOT_EXIST, self._admin.topic_route(topic))
        if route is None:
            advice = f"topic {topic} does not exist; create it with `sprocket topic create {topic}`"
            raise AdminError(advice, ResponseCode.TOPIC_NOT_EXIST)
        writable = {queues.broker_name for queues in route.queue_datas if queues.perm & PERM_WRITE}
        masters = {
            group.broker_name: group.broker_addrs[MASTER_ID]
            for group in route.broker_datas
            if group.broker_name in writable and MASTER_ID in group.broker_addrs
        }
        if not masters:
            raise AdminError(f"no master takes messages of topic {topic}; start one, or let the topic be written")
        return masters

    async def _find(
        self, masters: Mapping[str, str], topic: str, name: str, *, allows_several: bool = False
    ) -> dict[str, ScheduleState]:
        """Return the schedule by the name of its broker; nothing if no master has it."""
        found = {}
        for broker, address in masters.items():
            state = await self._admin.schedule(address, topic, name)
            if state is not None:
                found[broker] = state
        if len(found) > 1 and not allows_several:
            raise AdminError(f"schedule {name} is at {', '.join(sorted(found))}, and fires at each; delete and set it")
        return found

    async def _one(self, name: str, topic: str) -> tuple[str, ScheduleState]:
        masters = await self._masters(self._whole(topic))
        found = await self._find(masters, self._whole(topic), name)
        for broker, state in found.items():
            return masters[broker], state
        raise _missing(name, topic)

    # Names

    def _whole(self, topic: str) -> str:
        return with_namespace(self._namespace, topic)

    def _bare(self, state: ScheduleState) -> ScheduleState:
        topic = without_namespace(self._namespace, state.schedule.topic)
        return changed(state, schedule=changed(state.schedule, topic=topic))


def _chosen(masters: Iterable[str], schedule: Schedule) -> str:
    """Return the broker for a new schedule: another broker more or less changes few choices."""
    return max(masters, key=lambda one: crc32(f"{schedule.key}@{one}".encode()))


def rule_text(schedule: Schedule) -> str:
    """Return when a schedule fires, for people."""
    if schedule.cron:
        return f"{schedule.cron} {schedule.time_zone}"
    return f"every {timedelta(milliseconds=schedule.every_millis)}"


def condition_text(state: ScheduleState) -> str:
    """Return how a schedule is, for people."""
    if state.is_paused or state.is_moving:
        return "moving" if state.is_moving else "paused"
    return f"refused: {state.last_error}" if state.last_error else "active"


def _missing(name: str, topic: str) -> AdminError:
    return AdminError(f"topic {topic} has no schedule {name!r}; `sprocket schedule list` shows all")
