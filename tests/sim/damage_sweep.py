"""Damages one file of a stopped or crashed store, opens it, and says what came of it."""

import random
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from store.config.delay_levels import parse_delay_levels
from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.sim.log_model import Expected, LogModel, check_offsets
from tests.sim.script import ScriptRun
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import STORE_ROOT, SimStore, small_config

# The last property of a record whose CRC covers all of it: its name and the digits.
_SEAL: Final = b"__CRC32#\x01"
_SEAL_BYTES: Final = 24
# What is not damaged: it has no content.
_EMPTY_FILES: Final = {"lock"}
_STEPS: Final = ("append", "append", "flush_queues", "append", "append", "index", "append", "flush", "append", "append")


@dataclass
class DamageSweep:
    """A store of a seed, damaged in one place at a time.

    `outcomes` counts what came of it: refused by name, a log that ends earlier, records that are not served, or nothing
    to be seen.
    """

    seed: int
    clean: bool
    outcomes: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # What is not found, because nothing on the disk tells; each has a test of its own.
    tags_codes_differ: int = 0
    seals_lost: int = 0

    def __post_init__(self) -> None:
        self._config: StoreConfig = small_config(sync_flush=False, segment_bytes=8 * 1024)
        run = ScriptRun(self.seed, self._config, largest_body=3000)
        for kind in _STEPS:
            run.step(kind)
        if self.clean:
            run.store.shutdown()
        assert run.problems == []
        self._wall_ms = run.clock.wall_ms() + 1000
        self._model: LogModel = run.model
        self._disk: SimDisk = run.disk
        files = {path: len(content) for path, content in run.disk.files().items() if path.name not in _EMPTY_FILES}
        self._by_kind: dict[str, list[Path]] = {}
        for path in files:
            self._by_kind.setdefault(path.relative_to(STORE_ROOT).parts[0], []).append(path)

    def play(self, cases: int, seed: int = 0) -> None:
        """Damage so many times, each kind of file as often."""
        rng = random.Random(seed)
        kinds = sorted(self._by_kind)
        for number in range(cases):
            kind = kinds[number % len(kinds)]
            path = rng.choice(self._by_kind[kind])
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            disk = self._disk.crash(Subset(Survivors.ALL))
            what = _damage(disk, path, rng)
            self._note(f"seed {self.seed} clean {self.clean} case {seed}/{number}: {what}", disk, path)

    def _note(self, what: str, disk: SimDisk, path: Path) -> None:
        sim = SimStore(disk, self._config, ManualClock(self._wall_ms))
        try:
            store = sim.open()
        except StoreError as error:
            self._count("refused")
            if str(STORE_ROOT) not in str(error):
                self.problems.append(f"{what}: refused without a name: {error}")
            return
        except Exception:
            self.problems.append(f"{what}: {traceback.format_exc()}")
            return
        try:
            outcome, problems = self._look(store)
        except Exception:
            outcome, problems = "failed", [traceback.format_exc()]
        self._count(outcome)
        self.problems += [f"{what}: {problem}" for problem in problems]

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _look(self, store: MessageStore) -> tuple[str, list[str]]:
        """Read everything; what a reader gets must have been appended."""
        problems = check_offsets(store)
        end = store.wrote_offset
        unserved = 0
        kept = LogModel(self._model.segment_bytes, [item for item in self._model.records if item.end_offset <= end])
        for record in kept.records:
            try:
                view = store.record_at(record.physical_offset, record.size_bytes)
            except StoreError as error:
                unserved += 1
                if str(record.physical_offset) not in str(error):
                    problems.append(f"a refusal that names no offset: {error}")
                continue
            if view is None or bytes(view) != record.content:
                if view is not None and _has_lost_its_seal(bytes(view), record.content):
                    self.seals_lost += 1
                    return "seal lost", problems
                problems.append(f"the record at {record.physical_offset} is served and is not what was appended")
        expected = kept.queues()
        for key in sorted({*expected, *store.queues()}):
            found, problem = self._read_queue(store, key, expected.get(key, []))
            unserved += found
            problems += problem
        if unserved:
            return "not served", problems
        return ("log cut" if end < self._model.end_offset else "nothing lost"), problems

    def _read_queue(self, store: MessageStore, key: tuple[str, int], expected: list[Expected]) -> tuple[int, list[str]]:
        """How many messages are refused, and what is wrong with the others."""
        bounds = store.min_offset(*key), store.max_offset(*key)
        if bounds != (0, len(expected)):
            # A queue that lost all its entries continues after them.
            lost_all = not expected and bounds[0] == bounds[1]
            return 0, [] if lost_all else [f"{key} has {bounds}, the log says 0 to {len(expected)}"]
        refused, offset = 0, 0
        while offset < len(expected):
            try:
                result = store.get(*key, offset, 32, 1 << 30)
            except StoreError as error:
                refused += 1
                offset += 1
                if str(STORE_ROOT) not in str(error):
                    return refused, [f"a refusal that names no file: {error}"]
                continue
            served = b"".join(result.slices)
            content = [record.content for record in expected[offset : result.next_offset]]
            if result.next_offset <= offset or not _is_part(served, content):
                return refused, [f"{key} answers {result.status} at {offset}, and not what was appended"]
            if served != b"".join(content):
                return refused, [f"{key} skips messages at {offset}, and says {result.status}"]
            offset = result.next_offset
        delays_ms = parse_delay_levels(store.config.message_delay_level)
        codes = [record.tags_code(delays_ms) for record in expected]
        shown = store.tags_codes(*key, 0, len(expected)).tolist()
        self.tags_codes_differ += shown != codes[: len(shown)]
        return refused, []


def _has_lost_its_seal(served: bytes, content: bytes) -> bool:
    """Whether the damage hit the seal, so that the record looks like one from before there were seals."""
    return _SEAL not in served[-_SEAL_BYTES:] or served[:-_SEAL_BYTES] == content[:-_SEAL_BYTES]


def _is_part(served: bytes, content: list[bytes]) -> bool:
    """Whether `served` is some of the records of `content`, in order."""
    for record in content:
        served = served.removeprefix(record)
    return not served


def _damage(disk: SimDisk, path: Path, rng: random.Random) -> str:
    """Flip a bit, overwrite some bytes, cut or extend the file; what was done, in words."""
    content = bytes(disk.look(path))
    used = len(content.rstrip(b"\0"))
    # Mostly where something is written.
    place = rng.randrange(max(1, used if rng.random() < 0.85 else len(content)))
    match rng.randrange(10):
        case 0:
            disk.damage(path, lambda old: old[:place])
            return f"{path} cut to {place} of {len(content)} bytes"
        case 1:
            disk.damage(path, lambda old: old + bytes(rng.randint(1, 100)))
            return f"{path} extended"
        case 2:
            noise = rng.randbytes(rng.randint(2, 64))
            disk.damage(path, lambda old: (old[:place] + noise + old[place + len(noise) :])[: max(len(old), 1)])
            return f"{path} noise of {len(noise)} bytes at {place} of {used}"
        case 3:
            disk.damage(path, lambda old: old[:place] + bytes(min(512, len(old) - place)) + old[place + 512 :])
            return f"{path} zeros at {place} of {used}"
        case _:
            bit = 1 << rng.randrange(8)
            disk.damage(
                path, lambda old: old[:place] + bytes([(old[place : place + 1] or b"\0")[0] ^ bit]) + old[place + 1 :]
            )
            return f"{path} bit {bit} flipped at {place} of {used}"
