"""The blocking requests about schedules."""

from sprocket.client import schedules as aio
from sprocket.client.sync.blocking import blocking


class Schedules:
    """Schedules of one cluster, as `sprocket.Schedules`."""

    put = blocking(aio.Schedules.put)
    list = blocking(aio.Schedules.list)
    get = blocking(aio.Schedules.get)
    pause = blocking(aio.Schedules.pause)
    resume = blocking(aio.Schedules.resume)
    delete = blocking(aio.Schedules.delete)
    trigger = blocking(aio.Schedules.trigger)
    move_away = blocking(aio.Schedules.move_away)

    def __init__(self, schedules: aio.Schedules) -> None:
        self._aio = schedules
