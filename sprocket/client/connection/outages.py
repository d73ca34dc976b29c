"""What fails at present: so that an outage is logged when it begins and when it is over, and not at every attempt."""

from collections.abc import Callable, Hashable

from sprocket.client.errors import PermissionDenied


class Outages:
    """Failures that last, by what was attempted; times are monotonic s.

    `denied` is called with what access control refuses now, and with None when it refuses nothing any more.
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
        """What access control refuses now; None for nothing."""
        return next(iter(self._refused.values()), None)

    def failed(self, attempt: Hashable, error: Exception) -> bool:
        """Note that `attempt` failed; whether this begins an outage, so that it is worth a line in the log."""
        since, count = self._since.get(attempt, (self._monotonic(), 0))
        self._since[attempt] = since, count + 1
        if isinstance(error, PermissionDenied):
            self._refused[attempt] = error
            self._denied(error)
        return not count

    def succeeded(self, attempt: Hashable) -> tuple[float, int] | None:
        """Note that `attempt` went well; after an outage, its seconds and its failures."""
        if not self._since:
            return None  # the usual case, told fast
        began = self._since.pop(attempt, None)
        if self._refused.pop(attempt, None) is not None and not self._refused:
            self._denied(None)
        return None if began is None else (self._monotonic() - began[0], began[1])

    def told(self) -> None:
        """Note that the application was told what is refused: it is told again when that is refused again."""
        self._refused.clear()
        self._denied(None)
