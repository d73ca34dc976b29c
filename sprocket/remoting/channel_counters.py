"""Figures of the connections of one server or client."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChannelCounters:
    """What the channels of one server or client have seen."""

    opened: int = 0
    frames: int = 0
    received_bytes: int = 0
    stalled: int = 0
    idle_closed: int = 0
    partial_bytes: int = 0  # of frames that are not whole yet
    unsent_bytes: int = 0  # that peers have not taken yet, or had not when it was looked at last
    protocol_errors: dict[str, int] = field(default_factory=dict)

    def count_protocol_error(self, kind: str) -> None:
        self.protocol_errors[kind] = self.protocol_errors.get(kind, 0) + 1
