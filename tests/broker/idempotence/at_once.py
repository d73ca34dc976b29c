"""Timers that are over at once: work in steps is done within the call that begins it."""

from collections.abc import Callable

from broker.turns import Timer


class _Over:
    def cancel(self) -> None:
        pass


def call_at_once(seconds: float, callback: Callable[[], None]) -> Timer:
    """A `CallLater` that does not wait."""
    callback()
    return _Over()
