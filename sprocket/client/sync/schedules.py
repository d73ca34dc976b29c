"""The blocking requests about schedules."""

from sprocket.client import schedules as aio
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.remoting.bodies.schedule import Schedule, ScheduleState


class Schedules:
    """Schedules of one cluster, as `sprocket.Schedules`."""

    def __init__(self, schedules: aio.Schedules) -> None:
        self._aio = schedules

    def put(self, schedule: Schedule, *, replace: bool = True) -> ScheduleState:
        """Set a schedule, and return how it is then."""
        return shared_loop.call(self._aio.put(schedule, replace=replace))

    def list(self, cluster: str | None = None) -> "list[ScheduleState]":
        """Return how each schedule of `cluster` is, None: of all clusters."""
        return shared_loop.call(self._aio.list(cluster))

    def get(self, name: str, topic: str) -> ScheduleState:
        """Return how a schedule is."""
        return shared_loop.call(self._aio.get(name, topic))

    def pause(self, name: str, topic: str) -> None:
        """Pause a schedule."""
        shared_loop.call(self._aio.pause(name, topic))

    def resume(self, name: str, topic: str) -> None:
        """Let a paused schedule go on, from now."""
        shared_loop.call(self._aio.resume(name, topic))

    def delete(self, name: str, topic: str) -> None:
        """Delete a schedule."""
        shared_loop.call(self._aio.delete(name, topic))

    def trigger(self, name: str, topic: str) -> None:
        """Send the message of a schedule now."""
        shared_loop.call(self._aio.trigger(name, topic))

    def move_away(self, broker: str, address: str) -> tuple[int, int]:
        """Move all schedules of a master to others; return how many moved, and how many stay."""
        return shared_loop.call(self._aio.move_away(broker, address))
