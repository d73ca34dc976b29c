"""Table of current failures, so that the begin and end of an outage are logged, not each attempt."""

from collections.abc import Callable, Hashable

from sprocket.client.errors import PermissionDenied


class Outages:
    """Lasting failures by attempt; times are monotonic s.

    `denied` is called with a refusal of access control, and with None after the last one ends.
    """

    def __init__(
        self, monotonic: Callable[[], float], denied: Callable[[PermissionDenied | None], None] = lambda error: None
    ) -> None:
        self._monotonic = monotonic
        self._denied = denied
        self._since: dict[Hashable, tuple[float, int]] = {}
        self._refused: dict[Hashable, PermissionDenied] = {}

    @property
    def denial(self) -> PermissionDenied | None:
        """The current refusal of access control; None if there is none."""
        return next(iter(self._refused.values()), None)

    def failed(self, attempt: Hashable, error: Exception) -> bool:
        """Record that `attempt` failed.  Return whether an outage begins, which should be logged."""
        since, count = self._since.get(attempt, (self._monotonic(), 0))
        self._since[attempt] = since, count + 1
        if isinstance(error, PermissionDenied):
            self._refused[attempt] = error
            self._denied(error)
        return not count

    def succeeded(self, attempt: Hashable) -> tuple[float, int] | None:
        """Record that `attempt` succeeded.  Return the seconds and failures of the outage that ended, else None."""
        if not self._since:
            return None  # fast path
        began = self._since.pop(attempt, None)
        if self._refused.pop(attempt, None) is not None and not self._refused:
            self._denied(None)
        return None if began is None else (self._monotonic() - began[0], began[1])

    def told(self) -> None:
        """Record that the application got the refusal; the next refusal is reported again."""
        self._refused.clear()
        self._denied(None)
