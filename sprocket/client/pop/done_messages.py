"""Messages that an application is done with: brokers may deliver them again, after a lost acknowledgement."""

import math
from collections.abc import Callable
from typing import Final

from sprocket.client.pop.popped_message import Delivery, Identity, PoppedMessage, delivery_of, identity

_MAX_MESSAGES: Final = 4096


class DoneMessages:
    """The last messages that were acknowledged; with a `keep_s` of 0, none.

    Each is kept until `keep_s` after a broker has the acknowledgement, so that a later reset of offsets delivers it
    again.  Times are monotonic s.
    """

    def __init__(self, monotonic: Callable[[], float], keep_s: float) -> None:
        self._monotonic = monotonic
        self._keep_s = keep_s
        self._until: dict[Identity, tuple[float, Delivery]] = {}

    def __contains__(self, popped: PoppedMessage) -> bool:
        """Return whether an earlier delivery of the message of `popped` was acknowledged."""
        if not self._until:
            return False
        until, earlier = self._until.get(identity(popped), (-math.inf, None))
        return earlier is not None and until > self._monotonic() and delivery_of(popped).repeats(earlier)

    def add(self, popped: PoppedMessage) -> None:
        """Note that the application is done with `popped`, whatever becomes of the acknowledgement."""
        if not self._keep_s:
            return
        key = identity(popped)
        if self._until.pop(key, None) is None and len(self._until) == _MAX_MESSAGES:
            del self._until[next(iter(self._until))]
        self._until[key] = math.inf, delivery_of(popped)

    def acknowledged(self, popped: PoppedMessage) -> None:
        """Note that a broker has the acknowledgement of `popped`."""
        key = identity(popped)
        if key in self._until:
            self._until[key] = self._monotonic() + self._keep_s, delivery_of(popped)
