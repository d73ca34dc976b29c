"""Headers of requests about schedules.  Not in RocketMQ."""

from sprocket.remoting.headers.base import Header


class ScheduleRequestHeader(Header, kw_only=True):
    """DELETE_SCHEDULE, TRIGGER_SCHEDULE, GET_SCHEDULE.  `topic` is that of the schedule: access control asks for it."""

    topic: str
    name: str


class SetScheduleRequestHeader(Header, kw_only=True):
    """SET_SCHEDULE; the body is a `Schedule` with this topic.  Without `replace` a schedule that exists is refused."""

    topic: str
    replace: bool = False


class PauseScheduleRequestHeader(Header, kw_only=True):
    """PAUSE_SCHEDULE: pause a schedule, or let it go on."""

    topic: str
    name: str
    paused: bool
