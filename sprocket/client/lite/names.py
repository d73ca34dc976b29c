"""Parent topic and group of sessions that are given none."""

from typing import Final

SESSION_TOPIC: Final = "Sessions"
SESSION_GROUP: Final = "sessions"
