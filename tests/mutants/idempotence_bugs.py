"""Bugs of the window of ids that a killed broker shows; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_KILLS: Final = ("tests/chaos/kills/test_idempotent_kills.py",)

IDEMPOTENCE_MUTANTS: Final = (
    Mutant(
        "window of ids complete after one batch of the log",
        "broker/idempotence/known_ids.py",
        "        if self._next_offset < self._end_offset:\n            self._timer",
        "        if self._is_stopped:\n            self._timer",
        "after a SIGKILL a message whose answer was lost is stored twice",
        _KILLS,
    ),
    Mutant(
        "idempotent messages not held while the log is read",
        "broker/idempotence/known_ids.py",
        "        return self._is_complete and self._is_current() and (",
        "        return self._is_current() and (",
        "the first messages after a SIGKILL are stored again",
        _KILLS,
    ),
    Mutant(
        "ids read from the newest segment alone",
        "broker/idempotence/known_ids.py",
        "self._log.segment_before(self._clock.wall_ms() - self._window.window_ms)",
        "self._log.segment_before(self._clock.wall_ms())",
        "after a SIGKILL the ids of older segments are new",
        _KILLS,
    ),
)
