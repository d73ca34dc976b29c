"""Part of the administration client: namespaces, quotas and schedules at single brokers, given by address.

RocketMQ has none of them.
"""

from sprocket.client.admin.admin_requests import AdminRequests, none_if
from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceUse, NamespaceUsesBody
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody, QuotaUsageBody, QuotaUse
from sprocket.remoting.bodies.schedule import Schedule, ScheduleState, ScheduleStatesBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.schedule import (
    PauseScheduleRequestHeader,
    ScheduleRequestHeader,
    SetScheduleRequestHeader,
)


class OwnRequests(AdminRequests):
    """What `AdminClient` asks of Sprocket's brokers alone.  Every method raises AdminError."""

    # Namespaces

    async def set_namespace(self, broker: str, policy: NamespacePolicy) -> None:
        """Set what a namespace may have, in place of what was set, at a master; its slaves follow."""
        await self.ask(broker, RequestCode.SET_NAMESPACE, body=dumps(policy))

    async def delete_namespace(self, broker: str, name: str) -> None:
        """Delete what is set for a namespace, but nothing in it, at a master; its slaves follow."""
        await self.ask(broker, RequestCode.DELETE_NAMESPACE, body=name.encode())

    async def namespaces(self, broker: str) -> dict[str, NamespaceUse]:
        """Return what each namespace has at a broker, and may have; those that the caller may list."""
        uses = (await self.ask_body(broker, RequestCode.GET_NAMESPACES, NamespaceUsesBody)).uses
        return {use.name: use for use in uses}

    # Quotas

    async def set_quota(self, broker: str, quota: Quota) -> None:
        """Add or replace a quota at a master; its slaves follow."""
        await self.ask(broker, RequestCode.SET_QUOTA, body=dumps(quota))

    async def delete_quota(self, broker: str, name: str) -> None:
        """Delete a quota at a master; its slaves follow."""
        await self.ask(broker, RequestCode.DELETE_QUOTA, body=name.encode())

    async def quotas(self, broker: str) -> dict[str, Quota]:
        """Return the quotas of a broker by name."""
        return (await self.ask_body(broker, RequestCode.GET_ALL_QUOTAS, QuotaTableBody)).quota_table

    async def quota_usage(self, broker: str) -> list[QuotaUse]:
        """Return how much of each quota is used at a broker, the most used first."""
        return (await self.ask_body(broker, RequestCode.GET_QUOTA_USAGE, QuotaUsageBody)).uses

    # Schedules; `Schedules` changes them in a cluster

    async def set_schedule(
        self, broker: str, schedule: Schedule, *, replace: bool = False, like: ScheduleState | None = None
    ) -> None:
        """Add a schedule at a master, or with `replace` change the one of this name; its slaves follow.

        A new one goes on where that of `like`, at another broker, ended.
        """
        header = SetScheduleRequestHeader(topic=schedule.topic, replace=replace)
        if like is not None:
            header.since_millis = max(like.since_millis, like.fired_millis or 0)
            header.anchor_millis, header.paused = like.anchor_millis, like.is_paused
        await self.ask(broker, RequestCode.SET_SCHEDULE, header, dumps(schedule))

    async def delete_schedule(self, broker: str, topic: str, name: str) -> None:
        """Delete a schedule at a master; its slaves follow."""
        await self.ask(broker, RequestCode.DELETE_SCHEDULE, ScheduleRequestHeader(topic=topic, name=name))

    async def pause_schedule(self, broker: str, topic: str, name: str, *, paused: bool, moving: bool = False) -> None:
        """Pause a schedule at a master, or let it go on; its slaves follow.  With `moving` it rests in either case."""
        header = PauseScheduleRequestHeader(topic=topic, name=name, paused=paused, moving=moving)
        await self.ask(broker, RequestCode.PAUSE_SCHEDULE, header)

    async def trigger_schedule(self, broker: str, topic: str, name: str) -> None:
        """Let a master send the message of a schedule now."""
        await self.ask(broker, RequestCode.TRIGGER_SCHEDULE, ScheduleRequestHeader(topic=topic, name=name))

    async def schedule(self, broker: str, topic: str, name: str) -> ScheduleState | None:
        """Return how a schedule is at a broker; None if the broker does not have it."""
        header = ScheduleRequestHeader(topic=topic, name=name)
        answer = self.ask_body(broker, RequestCode.GET_SCHEDULE, ScheduleState, header)
        return await none_if(ResponseCode.QUERY_NOT_FOUND, answer)

    async def schedules(self, broker: str) -> list[ScheduleState]:
        """Return how each schedule of a broker is, by name; those that the caller may list."""
        return (await self.ask_body(broker, RequestCode.GET_SCHEDULES, ScheduleStatesBody)).schedules
