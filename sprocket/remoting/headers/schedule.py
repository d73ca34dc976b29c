"""Headers of requests about schedules.  Not in RocketMQ."""

from sprocket.remoting.headers.base import Header, Long


class ScheduleRequestHeader(Header, kw_only=True):
    """DELETE_SCHEDULE, TRIGGER_SCHEDULE, GET_SCHEDULE.  `topic` is that of the schedule: access control asks for it."""

    topic: str
    name: str


class SetScheduleRequestHeader(Header, kw_only=True):
    """SET_SCHEDULE; the body is a `Schedule` with this topic.  Without `replace` a schedule that exists is refused.

    The other fields are those of a `ScheduleEntry`, for a new one that another broker had; None: it begins now.
    """

    topic: str
    replace: bool = False
    since_millis: Long | None = None
    anchor_millis: Long | None = None
    paused: bool = False


class PauseScheduleRequestHeader(Header, kw_only=True):
    """PAUSE_SCHEDULE: pause a schedule, or let it go on.  With `moving` it rests because another broker gets it."""

    topic: str
    name: str
    paused: bool
    moving: bool = False
