"""The long run: ``python -m tests.chaos.soak --minutes 30``.

Goes round through kills, failpoints, power cuts, full disks, faults of replication and, where it is there, the sweep
of the simulated disk, each time with the next seed, and survives what it finds.  Prints one line per sweep as it ends,
and at last a table for docs/promises.md and every failure with its seed.  Status 1 when there was any.
"""

import argparse
import asyncio
import datetime
import importlib.util
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.disks.loop_disk import SKIPPED
from tests.chaos.kills.failpoint_rounds import FailpointRounds, NotReached, Scene, points, way_to
from tests.chaos.kills.test_sigkill import kill_rounds
from tests.chaos.load import CLEANING, PROPERTIES, Load
from tests.chaos.nursery import ChaosBroker, Nursery
from tests.chaos.replication.replication_sweeps import lost_masters, weather

_ROOT: Final = Path(__file__).parents[2]
# One sweep that takes longer hangs.
_SWEEP_LIMIT_S: Final = 600.0
_KILLS: Final = 100
_CUTS: Final = 50
_FILLS: Final = 10
Counts = Mapping[str, int]


class Found(Exception):
    """Something is wrong; the text says what."""


class NotHere(Exception):
    """This machine cannot do it; the text says why."""


@dataclass
class Sweep:
    """One kind of sweep and what became of it."""

    name: str
    run: Callable[[int], Counts]
    seeds: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    skipped: str = ""

    def go(self, seed: int) -> None:
        """Run with `seed`; never raises but to end the program."""
        began = time.monotonic()
        try:
            counts = self.run(seed)
            self.counts.update({name: number for name, number in counts.items() if not name.startswith("most ")})
            for name, number in counts.items():
                if name.startswith("most "):
                    self.counts[name] = max(self.counts[name], number)
        except NotHere as reason:
            self.skipped = str(reason)
            return
        except Exception as error:
            detail = str(error) if isinstance(error, Found | NotReached) else traceback.format_exc()
            self.failures.append(f"{self.name} seed {seed}: {detail}")
            print(f"\nFAILURE {self.failures[-1]}\n", flush=True)
        self.seeds.append(seed)
        self.seconds += time.monotonic() - began

    def row(self) -> str:
        """Its row of the table."""
        seeds = f"{self.seeds[0]} to {self.seeds[-1]}" if self.seeds else f"not run: {self.skipped}"
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items())
        return f"| {self.name} | {counts} | {seeds} | {self.seconds:.0f} | {len(self.failures)} |"


def _kills(seed: int) -> Counts:
    async def run(directory: Path) -> Load:
        with Nursery() as nursery, ChaosBroker(nursery, directory, PROPERTIES) as broker:
            return await asyncio.wait_for(kill_rounds(broker, _KILLS, seed), _SWEEP_LIMIT_S)

    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        load = asyncio.run(run(Path(name)))
    return {"kills": _KILLS, "acknowledged": load.acknowledged}


def _failpoints(seed: int) -> Counts:
    dice = random.Random(seed)

    async def run(directory: Path) -> Counts:
        counts: Counter[str] = Counter()
        load, cleaned = Load(), Load(is_cleaned=True)
        with (
            Nursery() as nursery,
            ChaosBroker(nursery, directory / "plain", PROPERTIES) as broker,
            ChaosBroker(nursery, directory / "cleaned", CLEANING) as other,
        ):
            plain_rounds, cleaned_rounds = FailpointRounds(broker, load, dice), FailpointRounds(other, cleaned, dice)
            for point in dice.sample(points(), len(points())):
                way = way_to(point)
                rounds = cleaned_rounds if way.scene is Scene.CLEANING else plain_rounds
                # Later visits of a point of the start or stop may never come.
                times = way.times + dice.randrange(5) if way.scene is Scene.SERVING else None
                problems = await asyncio.wait_for(rounds.die_at(point, times), _SWEEP_LIMIT_S)
                if problems:
                    raise Found(f"{point}, time {times}: {problems[:10]}")
                counts["deaths"] += 1
        counts["acknowledged"] = load.acknowledged + cleaned.acknowledged
        return counts

    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        return asyncio.run(run(Path(name)))


def _mounted(module: str, *arguments: str) -> dict[str, object]:
    command = ["unshare", "-m", sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=_ROOT, timeout=_SWEEP_LIMIT_S)
    except FileNotFoundError:
        raise NotHere("there is no unshare(1)") from None
    if ended.returncode == SKIPPED or (ended.returncode and ended.stderr.startswith("unshare:")):
        raise NotHere((ended.stdout + ended.stderr).strip())
    if ended.returncode:
        raise Found(ended.stderr[-4000:])
    outcome: dict[str, object] = json.loads(ended.stdout)
    if outcome["problems"]:
        raise Found(json.dumps(outcome))
    return outcome


def _number(outcome: Mapping[str, object], name: str) -> int:
    value = outcome[name]
    return round(value) if isinstance(value, int | float) else 0


def _power_cuts(flush: str) -> Callable[[int], Counts]:
    def run(seed: int) -> Counts:
        outcome = _mounted("tests.chaos.disks.power_cut", "--flush", flush, "--cycles", str(_CUTS), "--seed", str(seed))
        counts = {name: _number(outcome, name) for name in ("cuts", "kills", "generations", "acknowledged")}
        if flush == "ASYNC_FLUSH":
            counts["lost, all of them the newest"] = _number(outcome, "lost")
            oldest = outcome["oldest_lost_s"]
            counts["most ms old of those lost"] = round(oldest * 1000) if isinstance(oldest, float | int) else 0
        return counts

    return run


def _full_disks(file_system: str) -> Callable[[int], Counts]:
    def run(seed: int) -> Counts:
        arguments = ("--cycles", str(_FILLS), "--file-system", file_system, "--seed", str(seed))
        outcome = _mounted("tests.chaos.disks.disk_full", *arguments)
        return {name: _number(outcome, name) for name in ("cycles", "kills", "acknowledged")}

    return run


def _full_replicas(role: str) -> Callable[[int], Counts]:
    def run(seed: int) -> Counts:
        outcome = _mounted("tests.chaos.replication.replica_disk_full", "--cycles", "3", "--role", role)
        return {name: _number(outcome, name) for name in ("cycles", "acknowledged")}

    return run


def _simulated(sync_flush: bool) -> Callable[[int], Counts]:
    def run(seed: int) -> Counts:
        if importlib.util.find_spec("tests.sim.crash_sweep") is None:
            raise NotHere("there is no tests.sim")
        from tests.sim.crash_sweep import CrashSweep
        from tests.sim.script import ScriptRun
        from tests.sim.sim_store import small_config

        # Every operation of a script would take minutes; the seed says where to begin.
        sweep = CrashSweep(ScriptRun(seed, small_config(sync_flush=sync_flush)), every=7 + seed % 5)
        sweep.play(200)
        if sweep.problems:
            raise Found("\n".join(sweep.problems))
        return {"crash points": sweep.points, "crashes": sweep.states}

    return run


def sweeps() -> list[Sweep]:
    """All kinds, in the order in which they take turns."""
    return [
        Sweep("SIGKILL under load, SYNC_FLUSH", _kills),
        Sweep("power cut on ext4, SYNC_FLUSH", _power_cuts("SYNC_FLUSH")),
        Sweep("killed at each failpoint", _failpoints),
        Sweep("disk full, ext4", _full_disks("ext4")),
        Sweep("power cut on ext4, ASYNC_FLUSH", _power_cuts("ASYNC_FLUSH")),
        Sweep("disk full, tmpfs", _full_disks("tmpfs")),
        Sweep("simulated crashes, SYNC_FLUSH", _simulated(True)),
        Sweep("simulated crashes, ASYNC_FLUSH", _simulated(False)),
        Sweep("replication: master lost with its disk, SYNC_MASTER", lost_masters("SYNC_MASTER")),
        Sweep("replication: nodes and links fail, SYNC_MASTER", weather("SYNC_MASTER")),
        Sweep("replication: master lost with its disk, ASYNC_MASTER", lost_masters("ASYNC_MASTER")),
        Sweep("replication: nodes and links fail, ASYNC_MASTER", weather("ASYNC_MASTER")),
        Sweep("replication: disks of slave and master full, SYNC_MASTER", _full_replicas("SYNC_MASTER")),
        Sweep("replication: disks of slave and master full, ASYNC_MASTER", _full_replicas("ASYNC_MASTER")),
    ]


def _table(kinds: list[Sweep], began: str, minutes: float) -> str:
    lines = [f"{began}, {minutes:.0f} minutes: `python -m tests.chaos.soak`", ""]
    lines += ["| Sweep | Counts | Seeds | Seconds | Failures |", "|---|---|---|---|---|"]
    lines += [kind.row() for kind in kinds]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1000, help="of the first round; the suite's own are below 1000")
    parser.add_argument("--only", default="", help="sweeps whose name holds this")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # what recoveries in this process say
    began, start = datetime.datetime.now(datetime.UTC).date().isoformat(), time.monotonic()
    deadline = start + 60 * arguments.minutes
    kinds = [kind for kind in sweeps() if arguments.only in kind.name]
    seed = arguments.seed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the table is printed all the same
    try:
        while time.monotonic() < deadline and not all(kind.skipped for kind in kinds):
            for kind in kinds:
                if time.monotonic() < deadline and not kind.skipped:
                    kind.go(seed)
                    print(f"{time.monotonic() - start:7.0f} s  seed {seed}  {kind.row()}", flush=True)
            seed += 1
    except KeyboardInterrupt:
        print("interrupted")
    failures = [failure for kind in kinds for failure in kind.failures]
    print("\n" + _table(kinds, began, (time.monotonic() - start) / 60))
    for failure in failures:
        print(f"\nFAILURE {failure}")  # again, where they are looked for
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
