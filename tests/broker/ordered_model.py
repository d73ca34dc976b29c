"""What an orderly group must be like: locks, commits and messages, in the plainest form."""

from dataclasses import dataclass, field
from typing import Final

QUEUES: Final = 3
LOCK_LIVE_S: Final = 60.0


@dataclass
class Hold:
    """A lock as the broker answered; `since_s` is its last renewal."""

    client_id: str
    since_s: float


@dataclass
class Model:
    """What must be."""

    sent: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(QUEUES)])
    handled: list[int] = field(default_factory=lambda: [0] * QUEUES)  # by whomever; what is before it is done
    committed: list[int] = field(default_factory=lambda: [0] * QUEUES)
    saved: list[int] = field(default_factory=lambda: [0] * QUEUES)
    holds: dict[int, Hold] = field(default_factory=dict)
    registered: dict[str, float] = field(default_factory=dict)  # client id -> when it was last heard of

    def lock(self, client_id: str, queues: list[int], now_s: float) -> list[int]:
        granted = []
        for queue_id in queues:
            hold = self.holds.get(queue_id)
            if hold is None or hold.client_id == client_id or now_s - hold.since_s > LOCK_LIVE_S:
                self.holds[queue_id] = Hold(client_id, now_s)
                granted.append(queue_id)
        return sorted(granted)

    def unlock(self, client_id: str, queues: list[int]) -> None:
        for queue_id in queues:
            if queue_id in self.holds and self.holds[queue_id].client_id == client_id:
                del self.holds[queue_id]
