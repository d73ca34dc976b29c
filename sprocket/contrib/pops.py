"""How workers of tasks pop."""

import sys
from dataclasses import replace
from typing import Final

from sprocket.client.pop.pop_settings import PopSettings

# A task is remembered this long, so that a later reset of offsets runs it again.
_REMEMBERED_INVISIBLE_TIMES: Final = 3


def task_pops(settings: PopSettings) -> PopSettings:
    """Return `settings` for a worker: it keeps its tasks, however long they run, and runs none again that it ended."""
    remember_s = _REMEMBERED_INVISIBLE_TIMES * settings.pop_invisible_time_s
    return replace(settings, renew_limit_s=sys.maxsize, remember_s=remember_s)
