"""Schedules of a broker: the master of the group sends what is due; all replicas keep the tables.

A replica that begins to send reads the end of the log first (`broker.schedules.positions`).  A slave that acts for a
lost master sends nothing: it has no log of its own to note it in.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from acl.visible_names import visible_names
from broker.core import BrokerCore
from broker.flushed_log import log_flushed
from broker.periodic import Periodic
from broker.schedules.agenda import Agenda, Planned
from broker.schedules.positions import Fired, fired_in
from broker.service import Service
from broker.turns import Timer
from broker.upkeep.schedule_sends import ScheduleSends
from sprocket.common.errors import DiskFailed, InvariantError, NoLease, RequestError, SprocketError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.metrics.declared import Kind, Metric, Value, gauge
from sprocket.metrics.distribution import Labels
from sprocket.remoting.bodies.schedule import Schedule, ScheduleState
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.schedule import (
    PauseScheduleRequestHeader,
    ScheduleRequestHeader,
    SetScheduleRequestHeader,
)
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps

logger = logging.getLogger(__name__)

# Longest sleep, after which a step of the wall clock is noticed.
_MAX_SLEEP_S: Final = 1.0
# Messages that one turn of the loop sends, and schedules whose next time it computes.
_TURN_MESSAGES: Final = 32
_SAVE_S: Final = 5.0
_MAX_EXPORTED: Final = 500  # schedules with metrics
_LABELS: Final = ("schedule", "topic")
_APPENDED: Final = failpoint("schedules.appended")


class RecurringMessages(Service):
    """Service around the schedules of a broker.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, sends: ScheduleSends) -> None:
        self._core = core
        self._sends = sends
        self._table = core.schedules
        self._positions = core.schedule_positions
        self.agenda = Agenda(self._positions.fired_ms)
        self._table.on_change.append(lambda _: self._changed())
        self._followed = -1  # change of the table that the agenda has
        self._timer: Timer | None = None
        self._is_ready = False  # the log is known to its end

    # A service

    def routes(self) -> list[Route]:
        """Return the routes of requests about schedules."""
        code, topic, one = RequestCode, Resource.TOPIC, ScheduleRequestHeader
        return [
            Route(code.SET_SCHEDULE, SetScheduleRequestHeader, self.set_schedule, topic, Action.PUB),
            Route(code.DELETE_SCHEDULE, one, self.delete_schedule, topic, Action.PUB),
            Route(code.PAUSE_SCHEDULE, PauseScheduleRequestHeader, self.pause_schedule, topic, Action.PUB),
            Route(code.TRIGGER_SCHEDULE, one, self.trigger_schedule, topic, Action.PUB),
            Route(code.GET_SCHEDULE, one, self.schedule, topic, Action.PUB),
            Route(code.GET_SCHEDULES, NoHeader, self.schedules, Resource.CLUSTER, Action.LIST),
        ]

    def load(self) -> None:
        """Load schedules and positions."""
        self._table.load()
        self._positions.load()

    def periodic(self) -> list[Periodic]:
        """Save the positions."""
        return [Periodic("schedule_positions", _SAVE_S, self._save_positions)]

    async def _save_positions(self) -> None:
        if self._is_ready:
            self._positions.note_log()
        await self._positions.save(self._log_safe)

    async def _log_safe(self) -> bool:
        """Wait until the log is on the disk; return whether no other replica can lead without it.

        A position must not be on the disk before the message that it says.
        """
        store = self._core.store
        end = store.wrote_offset
        if await log_flushed(store) is not None:
            return False
        return self._core.role.is_slave or store.confirm_offset >= end

    def save(self) -> None:
        """Save schedules and positions; the log is flushed."""
        self._table.persist_changes()
        if self._is_ready:
            self._positions.note_log()
        self._positions.persist_changes()

    def activate(self) -> None:
        """Read what the end of the log says, then begin to send."""
        if self._core.role.is_slave:
            return
        end = self._core.store.wrote_offset
        start = self._positions.log_offset if self._table.by_name else end
        if start < end:
            logger.info("event=schedules_reading from=%d to=%d", start, end)
        self._set_timer(0.0, lambda: self._read(start, end))

    def deactivate(self) -> None:
        """End sending."""
        self._is_ready = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.agenda.clear()
        self._followed = -1

    # The timer

    def _set_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._core.call_later(seconds, callback)

    def _read(self, start: int, end: int) -> None:
        """Read one batch of records of the log, and give way to other work."""
        self._timer = None
        try:
            batch, next_offset = self._core.store.records_from(start) if start < end else (None, end)
        except StoreError as error:
            logger.warning("event=schedules_postponed reason=%r", str(error))
            self._set_timer(_MAX_SLEEP_S, lambda: self._read(start, end))
            return
        if batch is not None:
            for fired in fired_in(batch):
                self._positions.note(fired)
        if next_offset < end:
            self._set_timer(0.0, lambda: self._read(next_offset, end))
            return
        self._is_ready = True
        self._changed()

    def _changed(self) -> None:
        if self._is_ready:
            changes = self._table.changes_since(self._followed)
            if changes is None:
                self.agenda.update(self._table.by_name)
            else:
                self.agenda.change(changes)
            self._followed = self._table.change_count
            self.agenda.settle(_TURN_MESSAGES)
            self._wake()

    def _wake(self) -> None:
        wait_ms = self.agenda.wait_ms(self._core.clock.wall_ms())
        if wait_ms is not None:
            self._set_timer(min(wait_ms / 1000, _MAX_SLEEP_S), self.fire_due)

    def fire_due(self) -> None:
        """Send what is due now, up to a number of messages; the rest follows in the next turn of the loop."""
        self._timer = None
        self.agenda.settle(_TURN_MESSAGES)
        try:
            for _ in range(_TURN_MESSAGES):
                planned = self.agenda.pop_due(self._core.clock.wall_ms())
                if planned is None:
                    break
                self._fire(planned)
        except DiskFailed:
            return  # Latched: the store reports it to its owner.
        self._wake()

    def _fire(self, planned: Planned) -> None:
        """Send the message of a schedule that is due.  Raises DiskFailed."""
        schedule, timing = planned.entry.schedule, planned.timing
        assert timing is not None and timing.next_ms is not None
        fired = Fired(schedule.key, planned.entry.id, timing.next_ms)
        try:
            if not self._core.waits.may_acknowledge:
                raise NoLease
            self._sends.send(schedule, timing.next_ms, fired)
        except (DiskFailed, InvariantError):
            raise
        except Exception as error:  # any error: the other schedules still fire, and this one is tried again
            self.agenda.refused(planned, str(error), self._core.clock.wall_ms())
            peer_lines.error(
                logger, "", "event=schedule_refused schedule=%s topic=%s reason=%r", schedule.name, schedule.topic,
                str(error), exc_info=None if isinstance(error, SprocketError) else error,
            )  # fmt: skip
            return
        _APPENDED()
        self._positions.note(fired)
        self.agenda.fired(planned)

    # Requests

    async def set_schedule(self, request: Request[SetScheduleRequestHeader]) -> Response:
        """Add or replace a schedule; the response follows the write of the file."""
        schedule = loads(bytes(request.body), Schedule)
        header = request.header
        if schedule.topic != header.topic:
            remark = f"the topic of the header, {header.topic[:255]}, is not that of the schedule"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.INVALID_PARAMETER)
        if self._core.topics.get(schedule.topic) is None:
            remark = f"topic {schedule.topic[:255]} does not exist at this broker; create it first"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        is_first = not self._table.by_name
        self._table.put(
            schedule, may_replace=header.replace, since_ms=header.since_millis, anchor_ms=header.anchor_millis,
            is_paused=header.paused,
        )  # fmt: skip
        if is_first:
            self._positions.begin()
            await self._positions.save(self._log_safe)
        await self._table.save()
        return Response()

    async def delete_schedule(self, request: Request[ScheduleRequestHeader]) -> Response:
        """Delete a schedule; the response follows the write of the file."""
        self._table.delete(self._table.find(request.header.name, request.header.topic).schedule.key)
        await self._table.save()
        return Response()

    async def pause_schedule(self, request: Request[PauseScheduleRequestHeader]) -> Response:
        """Pause a schedule, or let it go on; the response follows the write of the file."""
        header = request.header
        entry = self._table.find(header.name, header.topic)
        self._table.pause(entry, is_paused=header.paused, is_moving=header.moving)
        await self._table.save()
        return Response()

    async def trigger_schedule(self, request: Request[ScheduleRequestHeader]) -> Response:
        """Send the message of a schedule now, also of a paused one.  Its fire times stay as they are.

        The response follows when the message is as safe as that of a producer.
        """
        waits = self._core.waits
        if not waits.may_acknowledge:
            raise NoLease
        schedule = self._table.find(request.header.name, request.header.topic).schedule
        end = self._sends.send(schedule, self._core.clock.wall_ms(), None)
        if waits.is_needed and (code := await waits.outcome(end)) != ResponseCode.SUCCESS:
            raise RequestError(code, "the message is in the log, but not yet safe; it will be delivered")
        return Response()

    def schedule(self, request: Request[ScheduleRequestHeader]) -> Response:
        """Return how one schedule is."""
        entry = self._table.find(request.header.name, request.header.topic)
        return Response(body=dumps(self._state(entry.schedule.key)))

    def schedules(self, request: Request[NoHeader]) -> Steps:
        """Return how each schedule is, of those that the sender may see."""
        shows = visible_names(request)
        table = sorted(self._table.by_name.items())
        states = (self._state(key) for key, one in table if shows is None or shows(one.schedule.topic))
        listed = yield from in_steps(states, list)
        return Response(body=dumps({"schedules": listed}))

    def _state(self, key: str) -> ScheduleState:
        entry = self._table.by_name[key]
        state = ScheduleState(
            schedule=entry.schedule, broker_name=self._core.config.broker.broker_name, is_paused=entry.is_paused,
            is_moving=entry.is_moving, since_millis=entry.since_millis, anchor_millis=entry.anchor_millis,
            fired_millis=self._positions.fired_ms(key),
        )  # fmt: skip
        planned = self.agenda.by_key.get(key)
        if planned is not None:
            state.next_millis = None if planned.timing is None else planned.timing.next_ms
            state.fired_total, state.refused_total = planned.fired_total, planned.refused_total
            state.last_error = planned.last_error
        return state

    # Metrics

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics of the first schedules, by name; of no more, however many there are."""

        def of_each(value: Callable[[Planned], Value]) -> Callable[[], list[tuple[Labels, Value]]]:
            def values() -> list[tuple[Labels, Value]]:
                planned = islice(self.agenda.by_key.values(), _MAX_EXPORTED)
                return [((one.entry.schedule.name, one.entry.schedule.topic), value(one)) for one in planned]

            return values

        return [
            gauge("sprocket_schedules", "schedules of this broker", lambda: len(self._table.by_name)),
            Metric("sprocket_schedule_fired_total", Kind.COUNTER, "messages that a schedule sent",
                   of_each(lambda one: one.fired_total), _LABELS),
            Metric("sprocket_schedule_refused_total", Kind.COUNTER, "attempts to send that were refused",
                   of_each(lambda one: one.refused_total), _LABELS),
            Metric("sprocket_schedule_failing", Kind.GAUGE, "1 if the last attempt to send was refused",
                   of_each(lambda one: int(bool(one.last_error))), _LABELS),
        ]  # fmt: skip
