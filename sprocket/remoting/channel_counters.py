"""Figures of the connections of one server or client."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChannelCounters:
    """Counters of all channels of one server or client."""

    opened: int = 0
    frames: int = 0
    received_bytes: int = 0
    stalled: int = 0
    idle_closed: int = 0
    partial_bytes: int = 0  # received bytes of incomplete frames
    unsent_bytes: int = 0  # bytes that peers had not taken at the last measurement
    protocol_errors: dict[str, int] = field(default_factory=dict)

    def count_protocol_error(self, kind: str) -> None:
        self.protocol_errors[kind] = self.protocol_errors.get(kind, 0) + 1
