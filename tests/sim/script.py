"""A run of operations on a store, made from a seed: the same seed, the same run, operation by operation."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sprocket.common.errors import RequestError, RestartNeeded, StoreError
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.config.store_config import StoreConfig
from store.layout import file_name
from store.message_store import MessageStore, PendingMessage
from tests.clock import ManualClock
from tests.sim.log_model import LogModel, ReadLog, check_offsets, check_store
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import ALLOCATE, FLUSH, FLUSH_QUEUES, INDEX, LOG_ROOT, SimStore

LONG_TOPIC: Final = "Long_" + "x" * 150
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_TOPICS: Final = ("Orders", "Pays", "Logs", LONG_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC)
_TAGS: Final = ("", "red", "green", "a" * 40)
_HOST: Final = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
_HOST_V6: Final = bytes(range(16)) + (5432).to_bytes(4, "big")
# How often each step comes.
_STEPS: Final[dict[str, int]] = {
    "append": 110,
    "flush": 24,
    "flush_queues": 8,
    "allocate": 10,
    "run_notified": 10,
    "index": 8,
    "pass_time": 8,
    "delete_topic": 4,
    "restart": 4,
    "kill": 5,
    "power_cut": 5,
    "refuse": 2,
}


def read_log(disk: SimDisk, segment_bytes: int, folder: Path = LOG_ROOT) -> ReadLog:
    """Reads the log past the store, from the files that are there when they are first read."""
    segments: dict[int, memoryview] = {}

    def read(offset: int, size_bytes: int) -> bytes:
        number, position = divmod(offset, segment_bytes)
        if number not in segments:
            segments[number] = disk.look(folder / file_name(offset - position))
        return bytes(segments[number][position : position + size_bytes])

    return read


class ScriptRun:
    """One run: a disk, the store on it, and the model of what it should hold."""

    def __init__(self, seed: int, config: StoreConfig, *, largest_body: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.disk = SimDisk(seed)
        self.clock = ManualClock()
        self.model = LogModel(config.mapped_file_size_commit_log)
        self.acknowledged_end = 0
        self.steps = 0
        self._largest_body = largest_body or config.mapped_file_size_commit_log - 1000
        self._outcomes = hashlib.sha256()
        # What the script itself found wrong, without any crash.
        self.problems: list[str] = []
        self.sim = self._open()

    @property
    def store(self) -> MessageStore:
        return self.sim.store

    @property
    def trace(self) -> str:
        """Hash of every operation on the disk and every outcome so far."""
        return f"{self.disk.trace} {self._outcomes.hexdigest()}"

    def play(self, steps: int, after_step: Callable[[str], None] | None = None) -> None:
        """Take so many steps; `after_step` is told the kind of each."""
        kinds, weights = list(_STEPS), list(_STEPS.values())
        for _ in range(steps):
            (kind,) = self.rng.choices(kinds, weights)
            self.step(kind)
            if after_step is not None:
                after_step(kind)

    def step(self, kind: str) -> None:
        """Take one step."""
        self.steps += 1
        getattr(self, f"_do_{kind}")()
        self._note_flushed()
        outcome = f"{kind} {self.store.wrote_offset} {self.store.flushed_offset} {self.acknowledged_end}"
        self._outcomes.update(outcome.encode())
        self.problems += [f"step {self.steps} {kind}: {problem}" for problem in check_offsets(self.store)]

    def _open(self) -> SimStore:
        sim = SimStore(self.disk, self.config, self.clock)
        sim.open()
        if self.rng.random() < 0.2:
            sim.store.store_host = _HOST_V6
        return sim

    def _note_flushed(self) -> None:
        self.model.durable_end = max(self.store.flushed_offset, self.acknowledged_end)

    # Steps

    def _do_append(self) -> None:
        count = self.rng.choice((1, 1, 1, 1, 2, 3, 8, 20))
        self.append([self.message() for _ in range(count)])

    def append(self, messages: list[PendingMessage]) -> None:
        """Append, and check and remember what the log then holds."""
        self.model.in_flight = messages
        results = self.store.append(messages)
        read = read_log(self.disk, self.model.segment_bytes)
        self.problems += self.model.appended(self.clock.wall_ms(), results, read)
        end = self.model.end_offset
        self.store.when_confirmed(end, lambda error: self._answered(end, error))

    def _answered(self, end: int, error: StoreError | None) -> None:
        # With ASYNC_FLUSH an answer says nothing of the disk.
        if error is None and self.store.flushed_offset >= end:
            self.acknowledged_end = max(self.acknowledged_end, end)

    def message(self) -> PendingMessage:
        rng = self.rng
        topic = rng.choice(_TOPICS)
        tag = rng.choice(_TAGS)
        properties = f"KEYS\x01k{rng.randrange(50)}\x02" if rng.random() < 0.7 else ""
        properties += f"TAGS\x01{tag}\x02" if tag else ""
        properties += f"DELAY\x01{rng.randint(1, 18)}\x02" if topic == SCHEDULE_TOPIC else ""
        return PendingMessage(
            topic=topic,
            queue_id=rng.choice((0, 0, 1, 2, 7)),
            body=rng.randbytes(self._body_bytes()),
            properties=properties.encode(),
            tags_code=java_hash_code(tag),
            flag=rng.randrange(100),
            sys_flag=int(SysFlag.TRANSACTION_PREPARED) if topic == HALF_TOPIC else 0,
            born_timestamp=rng.randrange(1 << 40),
            born_host=_HOST_V6 if rng.random() < 0.15 else _HOST,
            reconsume_times=rng.randrange(3),
            prepared_transaction_offset=rng.randrange(1 << 40),
        )

    def _body_bytes(self) -> int:
        kind = self.rng.random()
        if kind < 0.8:
            return self.rng.randint(1, 200)
        if kind < 0.97:
            return self.rng.randint(200, 3000)
        return self.rng.randint(1, self._largest_body)

    def _do_refuse(self) -> None:
        """A batch with a message that is too large leaves no trace."""
        messages = [self.message(), self.message()]
        messages[1].body = bytes(self.config.max_record_bytes)
        try:
            self.store.append(messages)
        except RequestError:
            return
        self.problems.append("a message over the limit was taken")

    def _do_flush(self) -> None:
        self.sim.flush()

    def _do_flush_queues(self) -> None:
        self.sim.flush_queues()

    def _do_allocate(self) -> None:
        self.sim.step(ALLOCATE)

    def _do_run_notified(self) -> None:
        self.sim.step(FLUSH)

    def _do_index(self) -> None:
        self.clock.advance(1.5)
        self.sim.step(INDEX)

    def _do_pass_time(self) -> None:
        self.clock.advance(self.rng.choice((0.001, 0.7, 3, 40)))
        self.sim.step(FLUSH_QUEUES)

    def _do_delete_topic(self) -> None:
        topics = sorted({topic for topic, _ in self.store.queues()})
        if topics:
            self.model.deleting = self.rng.choice(topics)
            keys = [key for key in self.store.queues() if key[0] == self.model.deleting]
            self.store.delete_topic(self.model.deleting)
            self.model.deleted(keys, self.store.wrote_offset)
            self.model.deleting = None

    def _do_restart(self) -> None:
        self.store.shutdown()
        self.disk.kill()
        self._note_flushed()
        self.sim = self._open()
        self._recovered("restart", is_whole=True)

    def _do_kill(self) -> None:
        self.disk.kill()
        self.sim = self._open()
        self._recovered("kill", is_whole=True)

    def _do_power_cut(self) -> None:
        survivors = self.rng.choice([kind for kind in Survivors if kind is not Survivors.TORN])
        hook = self.disk.after
        self.disk = self.disk.crash(Subset(survivors, self.rng.randrange(1 << 30)))
        self.disk.after = hook
        self.sim = self._open()
        self._recovered("power cut", is_whole=False)

    def _do_cut(self) -> None:
        """Cut the log after some record and restart, as a replica does whose master's log diverges there."""
        ends = [record.end_offset for record in self.model.records]
        end = self.rng.choice([end for end in ends if end > self.store.master_log().min_offset][:-1])
        lost = self.model.records[ends.index(end) + 1 :]
        self.acknowledged_end = min(self.acknowledged_end, end)
        # From here on a crash leaves the log as it was, or cut.
        self.model.durable_end = min(self.model.durable_end, end)
        try:
            self.store.replica().cut(end, "test")
        except RestartNeeded:
            self.store.shutdown()
        self.sim = self._open()
        if self.store.wrote_offset != end:
            self.problems.append(f"step {self.steps} cut: the log ends at {self.store.wrote_offset}, wanted was {end}")
        self._recovered("cut", is_whole=False)
        kept = b"".join(bytes(self.disk.look(path)) for path in sorted(self.disk.files()) if "cut" in path.parts)
        if any(record.content not in kept for record in lost):
            self.problems.append(f"step {self.steps} cut: what was cut off is not kept")

    def _recovered(self, how: str, *, is_whole: bool) -> None:
        """Check the store that was just opened, and go on from what it holds."""
        before = len(self.model.records)
        read = read_log(self.disk, self.model.segment_bytes)
        self.model, problems = self.model.recovered(self.store, read)
        problems += check_store(self.store, self.model)
        if is_whole and len(self.model.records) != before:
            problems.append(f"{before} records became {len(self.model.records)}")
        self.problems += [f"step {self.steps} {how}: {problem}" for problem in problems]
        self.acknowledged_end = min(self.acknowledged_end, self.model.end_offset)
