"""How fast a message is found by key among millions, and how fast the index of them is built.

    python -m benchmarks.store.key_query [--entries 10000000] [--keys 20000] [--rounds 5] [--folder FOLDER]

One index file with RocketMQ's default number of slots is filled through the service's own batch path (`IndexFile.put`
of arrays).  Then the same keys are searched in it by us and, in turns, by RocketMQ's own `IndexFile` over the same
bytes, where Java is there.  Before that the index of a log of a million messages is built as after a start, from the
log's bytes on: what walking, key search and hashing cost is in that rate, not in the first.
"""

import argparse
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.index.index_file import IndexFile, IndexHeader
from store.index.key_scan import IndexEntries, index_hash
from store.layout import INDEX_SLOTS_PER_FILE, INDEX_UNITS_PER_FILE, index_file_bytes
from store.message_store import MessageStore, PendingMessage
from tests.compat import maven

TOPIC = "Orders"
HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
TOOL = Path(__file__).resolve().parents[2] / "tests" / "compat" / "java" / "store" / "IndexTool.java"
BATCH = 16 * 1024
LOG_MESSAGES = 1_000_000
FIRST_MS = 1_700_000_000_000


def key(number: int) -> str:
    """A unique key as clients make them."""
    return f"AC11000100002A139A0C{number:012X}"


def fill(path: Path, entries: int) -> tuple[IndexFile, float]:
    """A file of `entries` entries, and the seconds of CPU that putting them took."""
    size = index_file_bytes(INDEX_SLOTS_PER_FILE, INDEX_UNITS_PER_FILE)
    made = RealDisk().create(path, size, preallocate=False)
    file = IndexFile(made, INDEX_SLOTS_PER_FILE, INDEX_UNITS_PER_FILE, IndexHeader(), is_new=True)
    file.open_slots()
    seconds = 0.0
    for first in range(0, entries, BATCH):
        numbers = range(first, min(first + BATCH, entries))
        hashes = np.array([index_hash(TOPIC, key(number)) for number in numbers], np.int32)
        started = time.process_time()
        offsets = np.arange(numbers.start, numbers.stop) * 300
        file.put(IndexEntries(hashes, offsets, FIRST_MS + offsets // 300))
        seconds += time.process_time() - started
    started = time.process_time()
    file.flush()
    return file, seconds + time.process_time() - started


def search_ns(file: IndexFile, keys: Sequence[str]) -> list[int]:
    """Nanoseconds of each search, its hash included; every key must be found."""
    times = []
    for word in keys:
        found: list[int] = []
        started = time.perf_counter_ns()
        file.select(found, index_hash(TOPIC, word), 64, 0, (1 << 63) - 1)
        times.append(time.perf_counter_ns() - started)
        if int(word[20:], 16) * 300 not in found:
            raise SystemExit(f"{word} is not found")
    return times


def java_ns(path: Path, keys: Path, rounds: int) -> tuple[int, int, int]:
    """p50 and p99, ns, of RocketMQ's searches in its last round, and how many entries it found."""
    command = [
        maven.java(), "-Xmx256m", "-cp", maven.apache_classpath(), str(TOOL), "time", str(path),
        str(INDEX_SLOTS_PER_FILE), str(INDEX_UNITS_PER_FILE), str(keys), str(rounds),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("TIME\t")]
    _, half, most, found = lines[-1]
    return int(half), int(most), int(found)


def measure_queries(folder: Path, entries: int, count: int, rounds: int) -> None:
    path = folder / "20260101000000000"
    file, seconds = fill(path, entries)
    print(f"put {entries:,} entries into one file: {entries / seconds:,.0f} entries/s of CPU")
    chance = random.Random(1)
    keys = [key(chance.randrange(entries)) for _ in range(count)]
    words = folder / "keys.txt"
    words.write_text("".join(f"{TOPIC}#{word}\n" for word in keys))
    halves, mosts, java = [], [], []
    for _ in range(rounds):
        times = sorted(search_ns(file, keys))
        halves.append(times[count // 2])
        mosts.append(times[count * 99 // 100])
        try:
            java.append(java_ns(path, words, 3))
        except maven.JavaMissingError as error:
            print(f"apache: left out: {error}")
            break
    file.close()
    print(f"sprocket p50 {statistics.median(halves):,.0f} ns, p99 {statistics.median(mosts):,.0f} ns")
    if len(java) == rounds:
        half = statistics.median(result[0] for result in java)
        most = statistics.median(result[1] for result in java)
        print(f"apache   p50 {half:,.0f} ns, p99 {most:,.0f} ns, {java[-1][2]:,} entries found by {count:,} keys")


def measure_build(folder: Path, messages: int) -> None:
    """The index of a log that is there, from its bytes on."""
    config = StoreConfig(store_path_root_dir=folder / "store", message_index_enable=False)
    store = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
    store.start()
    for first in range(0, messages, 64):
        store.append([
            PendingMessage(
                TOPIC, number % 8, b"x" * 128, f"UNIQ_KEY\x01{key(number)}\x02WAIT\x01true\x02TAGS\x01a\x02".encode(),
                97, 0, 0, FIRST_MS, HOST,
            )
            for number in range(first, first + 64)
        ])  # fmt: skip
    end = store.wrote_offset
    store.shutdown()
    store = MessageStore(
        replace(config, message_index_enable=True, message_index_safe=True),
        clock=SystemClock(),
        notify=lambda run: None,
    )
    opened = time.process_time()
    store.start()
    seconds = time.process_time() - opened
    if store.index.reached_offset != end:
        raise SystemExit("the index did not get to the log's end")
    store.shutdown()
    print(f"index a log of {messages:,} messages, 128 B, one key each: {messages / seconds:,.0f} messages/s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=LOG_MESSAGES)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="key-query-", dir=arguments.folder))
    try:
        measure_build(folder, arguments.messages)
        measure_queries(folder, arguments.entries, arguments.keys, arguments.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
