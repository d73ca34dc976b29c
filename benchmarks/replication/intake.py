"""The slave's check of records that arrive, with pure Python: by columns and one by one, in turns, without sockets.

    SPROCKET_ENGINE=python python -m benchmarks.replication.intake [--rounds 400]

A store writes records with bodies of 128 B and the properties of usual sends.  `RecordIntake.take` then gets reads of
several sizes.  `mixed` has bodies of 100 to 163 B, `tags` has tags of three lengths, and `topics` has four topics.
Figures are medians of the CPU of one read in us, ratios those of pairs in turns.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from benchmarks.store.recovery import HOST, TAGS
from benchmarks.system.frames import send_properties
from sprocket.common.clock import SystemClock
from sprocket.remoting.codec.java_hash import java_hash_code
from store.alike import arrived_records
from store.appender import Batch
from store.config.store_config import StoreConfig
from store.dispatch.record_intake import RecordIntake
from store.message_store import MessageStore, PendingMessage
from store.record.record import TagsCodes

READS = (8, 16, 32, 64, 128, 192, 256)
_ADDED = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


class Case(NamedTuple):
    """Kind of a read."""

    name: str
    queues: int = 1
    is_mixed: bool = False
    tags: tuple[str, ...] = ("TagA",)
    topics: int = 1


CASES = (
    Case("1 queue"), Case("4 queues", 4), Case("mixed", 4, is_mixed=True), Case("tags", 4, tags=TAGS),
    Case("topics", 4, topics=4),
)  # fmt: skip


def _messages(case: Case, count: int) -> Iterator[PendingMessage]:
    for number in range(count):
        tag = case.tags[number % len(case.tags)]
        properties = send_properties(number).replace("TagA", tag) + _ADDED
        body = bytes(100 + number * 29 % 64 if case.is_mixed else 128)
        yield PendingMessage(
            f"Orders{number % case.topics}", number // case.topics % case.queues, body, properties.encode(),
            java_hash_code(tag), 0, 0, time.time_ns() // 1_000_000, HOST,
        )  # fmt: skip


def written(case: Case, folder: Path) -> memoryview:
    """Return a log of records."""
    config = StoreConfig(store_path_root_dir=folder, enabled_append_prop_crc=True, mapped_file_size_commit_log=1 << 20)
    store = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
    store.start()
    store.append(list(_messages(case, READS[-1] + 64)))
    content = store.master_log().piece_at(0, store.wrote_offset)
    assert content is not None
    log = memoryview(bytes(content))
    store.shutdown()
    shutil.rmtree(folder)
    return log


class _Reads:
    """Reads of one case.  They begin after two records of each queue, because the first one of a queue is unusual."""

    def __init__(self, log: memoryview, case: Case) -> None:
        self._log = log
        self._first = 2 * case.topics * case.queues
        self._ends = [0]
        while self._ends[-1] < len(log):
            self._ends.append(self._ends[-1] + int.from_bytes(log[self._ends[-1] : self._ends[-1] + 4], "big"))
        self._queues: dict[tuple[str, int], Any] = {
            (f"Orders{topic}", queue): SimpleNamespace(next_offset=0, is_batch=False, is_schedule=False)
            for topic in range(case.topics)
            for queue in range(case.queues)
        }
        at = SimpleNamespace(segment_end=lambda _: 1 << 40, requires_seals=False)
        table = SimpleNamespace(by_key=self._queues, dispatches=False)
        self.intake = RecordIntake(at, table, TagsCodes("1s"), None)  # type: ignore[arg-type]

    def cpu_us(self, count: int) -> float:
        """Take `count` records; return the CPU it took."""
        for queue in self._queues.values():
            queue.next_offset = 2
        start, end = self._ends[self._first], self._ends[self._first + count]
        content, batch = memoryview(bytes(self._log[start:end])), Batch(0)
        dispatch = SimpleNamespace(enter_units=lambda queue, units: None)
        began = time.process_time_ns()
        taken = self.intake.take(dispatch, batch, start, content)  # type: ignore[arg-type]
        took = time.process_time_ns() - began
        assert taken == end
        return took / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    arguments = parser.parse_args()
    usual = arrived_records.MIN_ALIKE
    folder = Path(tempfile.mkdtemp(prefix="sprocket-bench-"))
    print("| read | records | one by one us | columns us | columns / one by one |\n|---|--:|--:|--:|--:|")
    for case in CASES:
        reads = _Reads(written(case, folder / "store"), case)
        for count in READS:
            pairs = []
            for _ in range(arguments.rounds):
                arrived_records.MIN_ALIKE = 1 << 31  # type: ignore[misc]
                single = reads.cpu_us(count)
                arrived_records.MIN_ALIKE = 1  # type: ignore[misc]
                pairs.append((single, reads.cpu_us(count)))
            single, columns = (median(column) for column in zip(*pairs, strict=True))
            ratio = median(two / one for one, two in pairs)
            print(f"| {case.name} | {count} | {single:.0f} | {columns:.0f} | {ratio:.2f} |", flush=True)
    arrived_records.MIN_ALIKE = usual  # type: ignore[misc]
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
