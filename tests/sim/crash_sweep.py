"""Crashes a script after its operations on the disk, opens what is left, and checks it."""

import contextlib
import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sprocket.common.errors import StoreError
from store.config.store_config import StoreConfig
from store.message_store import PendingMessage
from tests.clock import ManualClock
from tests.sim.log_model import LogModel, check_store
from tests.sim.script import ScriptRun, read_log
from tests.sim.sim_disk import Operation, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import STORE_ROOT, SimStore

_HOST: Final = bytes(8)
_ROTATING: Final = (Survivors.NEWEST, Survivors.OLDEST, Survivors.ALTERNATING)


class PowerLost(BaseException):
    """Raised in the middle of a recovery, past everything that handles errors."""


def subsets_of(number: int, count: int, *, torn: bool = False) -> Iterator[Subset]:
    """`count` outcomes of a crash after operation `number`: nothing, everything, by chance, by age."""
    kinds = [Survivors.NONE, Survivors.ALL, Survivors.RANDOM, _ROTATING[number % 3], _ROTATING[(number + 1) % 3]]
    for index in range(count):
        survivors = kinds[index] if index < len(kinds) else Survivors.RANDOM
        if torn and survivors is Survivors.RANDOM:
            survivors = Survivors.TORN
        yield Subset(survivors, number * 1009 + index)


@dataclass
class CrashSweep:
    """One script, crashed after each of its steps and every `every`-th operation on the disk, in `subsets` ways each.

    Of these points it takes the share `part` of `parts`, so that many sweeps can divide a script among them.

    A problem names the seed, the operation and the subset: together they give the same state again.
    """

    run: ScriptRun
    subsets: int = 5
    every: int = 1
    part: int = 0
    parts: int = 1
    torn: bool = False
    max_problems: int = 5
    points: int = 0
    states: int = 0
    problems: list[str] = field(default_factory=list)
    _last: Operation | None = None
    _offered: int = 0

    def play(self, steps: int) -> None:
        """Play the script and crash it on the way.  Stops early when there are problems enough."""
        self.run.disk.after = self.crash_after
        for _ in range(steps):
            if len(self.problems) >= self.max_problems:
                break
            self._last = None
            self.run.play(1)
            if self._last is not None and self._last.number % self.every:
                self._crash(self._last)
        self.problems += self.run.problems

    def crash_after(self, operation: Operation) -> None:
        self._last = operation
        if operation.number % self.every == 0:
            self._crash(operation)

    def _crash(self, operation: Operation) -> None:
        if len(self.problems) >= self.max_problems:
            return
        self._offered += 1
        if self._offered % self.parts != self.part:
            return
        self.points += 1
        for index, subset in enumerate(subsets_of(operation.number, self.subsets, torn=self.torn)):
            self.states += 1
            where = f"step {self.run.steps + 1} after {operation} {subset}"
            kind = (operation.number + index) % 4
            self.problems += [f"{where}: {problem}" for problem in self._check(subset, kind)]

    def _check(self, subset: Subset, kind: int) -> list[str]:
        disk = self.run.disk.crash(subset)
        state = CrashedState(self.run.config, self.run.clock.wall_ms(), self.run.model)
        try:
            if kind == 0:
                disk = state.crash_recovery(disk, subset)
            sim, problems = state.check(disk)
            if kind == 1 and not problems:
                problems = state.check_further_appends(sim, random.Random(subset.seed))
            if kind == 2 and not problems:
                problems = state.check_second_open(sim)
        except StoreError as error:
            return [f"refused: {error}"]
        except Exception:
            return [traceback.format_exc()]
        return problems


class CrashedState:
    """What a crash left, and what it must hold: `model` as it was at the crash."""

    def __init__(self, config: StoreConfig, wall_ms: int, model: LogModel) -> None:
        self._config = config
        self._wall_ms = wall_ms + 1000
        self._model = model

    def open(self, disk: SimDisk) -> SimStore:
        """A started store on `disk`."""
        sim = SimStore(disk, self._config, ManualClock(self._wall_ms))
        sim.open()
        return sim

    def check(self, disk: SimDisk) -> tuple[SimStore, list[str]]:
        """Open the store; what is wrong with it.  From here on it is held against what it had when it opened."""
        sim = self.open(disk)
        read = read_log(disk, self._model.segment_bytes)
        self._model, problems = self._model.recovered(sim.store, read)
        return sim, problems + check_store(sim.store, self._model)

    def crash_recovery(self, disk: SimDisk, subset: Subset) -> SimDisk:
        """The disk after a second loss of power, somewhere in the middle of the first recovery."""
        rng = random.Random(subset.seed)
        trial = disk.crash(Subset(Survivors.ALL))
        before = trial.operations
        self.open(trial)
        last = rng.randint(before + 1, trial.operations)

        def lose_power(operation: Operation) -> None:
            if operation.number == last:
                raise PowerLost

        disk.after = lose_power
        with contextlib.suppress(PowerLost):
            self.open(disk)
        return disk.crash(Subset(rng.choice(list(Survivors)[:6]), subset.seed))

    def check_further_appends(self, sim: SimStore, rng: random.Random) -> list[str]:
        """Append some more, of sizes that do not fit the bytes after the log's end, and recover again."""
        model = self._model
        problems: list[str] = []
        for number in range(3):
            model.in_flight = [_message(number, rng.randint(1, 400)) for _ in range(rng.randint(1, 3))]
            results = sim.store.append(model.in_flight)
            problems += model.appended(sim.clock.wall_ms(), results, read_log(sim.disk, model.segment_bytes))
        model.blank_end = 0
        sim.disk.kill()
        _, found = self.check(sim.disk)
        if self._model.end_offset != model.end_offset:
            found.append(f"the log ends at {self._model.end_offset}, appended was up to {model.end_offset}")
        return [f"after further appends: {problem}" for problem in problems + found]

    def check_second_open(self, sim: SimStore) -> list[str]:
        """A clean stop, and then another start and stop, change neither log nor queues."""
        sim.store.shutdown()
        before = sim.disk.files()
        sim.disk.kill()
        sim, problems = self.check(sim.disk)
        sim.store.shutdown()
        after = sim.disk.files()
        # Not the bookkeeping in the root, nor the index, which may follow the log only at the second stop.
        paths = sorted(path for path in {*before, *after} if path.parent not in (STORE_ROOT, STORE_ROOT / "index"))
        changed = [str(path) for path in paths if before.get(path) != after.get(path)]
        if changed:
            problems.append(f"changed {changed}")
        return [f"second open: {problem}" for problem in problems]


def _message(number: int, body_bytes: int) -> PendingMessage:
    return PendingMessage("Later", number, b"later" * body_bytes, b"", 0, 0, 0, 1_600_000_000_000, _HOST)
