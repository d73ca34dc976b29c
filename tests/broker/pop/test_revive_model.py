"""Random pops, acknowledgements, pauses and crashes against a model: nothing is lost, nothing acknowledged comes."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.pop.records import PopCheckPoint
from tests.broker.pop.revive_rig import ReviveRig

# A message must be redelivered within this time after it is due.
_LATEST_MS = 5_000


@dataclass
class Popped:
    """One pop and the state of its messages."""

    checkpoint: PopCheckPoint
    in_time: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)  # acknowledged when it may have been redelivered already

    @property
    def offsets(self) -> list[int]:
        return [self.checkpoint.offset_at(index) for index in range(self.checkpoint.n)]


class ReviveModel(RuleBasedStateMachine):
    """Each message is popped once, so it is redelivered once, and at most once more per crash."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rig = ReviveRig(Path(self.folder.name))
        self.pops: list[Popped] = []
        self.crashes = 0

    @initialize()
    def send(self) -> None:
        self.next_offset = 0
        self.rig.send(400)

    @rule(count=st.integers(1, 6), gap=st.integers(1, 2), invisible_s=st.integers(1, 8))
    def pop(self, count: int, gap: int, invisible_s: int) -> None:
        offsets = [self.next_offset + index * gap for index in range(count)]
        self.next_offset = offsets[-1] + 1
        self.pops.append(Popped(self.rig.pop(*offsets, invisible_ms=invisible_s * 1_000)))

    @precondition(lambda self: self.pops)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        popped = data.draw(st.sampled_from(self.pops))
        offsets = data.draw(st.lists(st.sampled_from(popped.offsets), min_size=1, unique=True))
        self.rig.ack(popped.checkpoint, *offsets)
        is_in_time = self.rig.clock.wall_ms() < popped.checkpoint.revive_time
        (popped.in_time if is_in_time else popped.in_doubt).update(offsets)

    @rule(seconds=st.sampled_from([0.1, 1, 2, 3, 7]))
    def elapse(self, seconds: float) -> None:
        self.rig.elapse(seconds)

    @precondition(lambda self: self.crashes < 4)
    @rule(is_orderly=st.booleans())
    def stop(self, is_orderly: bool) -> None:
        self.crashes += 1
        self.rig = self.rig.restart() if is_orderly else self.rig.crash()

    @rule()
    def save(self) -> None:
        self.rig.flush()
        self.rig.service.save()
        self.rig.core.offsets.persist()

    @invariant()
    def nothing_comes_too_early_or_after_its_acknowledgement(self) -> None:
        if not hasattr(self, "next_offset"):
            return
        again = self.rig.offsets_again()
        now = self.rig.clock.wall_ms()
        for popped in self.pops:
            for offset in popped.offsets:
                times = again.count(offset)
                if offset in popped.in_time or now < popped.checkpoint.revive_time:
                    assert times == 0, f"{offset} came again"
                assert times <= 1 + self.crashes, f"{offset} came {times} times"

    def teardown(self) -> None:
        try:
            self.rig.elapse(8 + _LATEST_MS / 1000)
            again = set(self.rig.offsets_again())
            for popped in self.pops:
                missing = set(popped.offsets) - popped.in_time - popped.in_doubt - again
                assert not missing, f"{missing} did not come again"
        finally:
            self.rig.close()
            self.folder.cleanup()


TestReviveModel = ReviveModel.TestCase
TestReviveModel.settings = settings(
    max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
