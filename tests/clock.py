"""Clock that a test moves by hand."""


class ManualClock:
    """A `sprocket.common.clock.Clock` that only `advance` and `step_wall` move."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def step_wall(self, milliseconds: int) -> None:
        """Move the wall clock forward or back without time passing, as an operator or NTP does."""
        self._wall_ms += milliseconds
