"""How long a store with very many ConsumeQueues takes to open, and what a flush of all queues does to sends.

    python -m benchmarks.store.open_time [--queues 1000 10000 50000] [--descriptors 4096] [--realtime] [--folder FOLDER]

For each number of queues: a store is written with two messages in every queue (8 queues a topic, files of the usual
6 MB, sparse) and stopped; then it is opened three times after a clean stop, and three times after a crash that left
one record behind the last checkpoint.  The page cache is warm.  Then every queue gets one more message, and batches of
64 are appended while one flush of all queues runs beside.
"""

import argparse
import contextlib
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sprocket.common.clock import SystemClock
from sprocket.common.errors import StoreBusy
from store.config.store_config import StoreConfig
from store.message_store import MessageStore, PendingMessage

HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
QUEUES_PER_TOPIC = 8
BATCH = 64
ROUNDS = 3
SEGMENT_BYTES = 64 << 20


def message(number: int) -> PendingMessage:
    topic, queue_id = f"Orders{number // QUEUES_PER_TOPIC}", number % QUEUES_PER_TOPIC
    return PendingMessage(topic, queue_id, b"." * 100, b"", 0, 0, 0, 1_700_000_000_000, HOST)


def new_store(config: StoreConfig) -> MessageStore:
    return MessageStore(config, clock=SystemClock(), notify=lambda run: run())


def one_in_each(store: MessageStore, queues: int) -> None:
    for first in range(0, queues, BATCH):
        batch = [message(number) for number in range(first, min(first + BATCH, queues))]
        while True:
            try:
                store.append(batch)
                break
            except StoreBusy:
                time.sleep(0.2)


def crash(store: MessageStore) -> None:
    """End the store's threads as SIGKILL would: nothing is flushed, `abort` stays."""
    store._group_commit.stop()
    store._queue_flush.stop()
    store._close()


@contextlib.contextmanager
def realtime() -> Iterator[None]:
    """Keep others' processes from preempting this one: on a busy machine the wall clock is theirs otherwise."""
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


class Opened(NamedTuple):
    """Seconds by the clock and of CPU; the store's queues, and the process's descriptors after it."""

    clock_s: float
    cpu_s: float
    queues: int
    descriptors: int


def write_queues(config: StoreConfig, queues: int) -> tuple[float, float]:
    """Write a store with two messages in each queue; return the seconds of the writes and of the stop."""
    store = new_store(config)
    store.start()
    started = time.perf_counter()
    for _ in range(2):
        one_in_each(store, queues)
    written = time.perf_counter()
    store.shutdown()
    return written - started, time.perf_counter() - written


def measure_open(config: StoreConfig, name: str, *, rounds: int, is_realtime: bool) -> list[Opened]:
    """Open the store after a stop that was `clean`, or after a `crash`, `rounds` times."""
    opened = []
    for _ in range(rounds):
        store = new_store(config)
        if name == "crash":
            store.start()
            store.append([message(0)])
            crash(store)
            store = new_store(config)
        with realtime() if is_realtime else contextlib.nullcontext():
            started, cpu = time.perf_counter(), time.process_time()
            store.start()
            clock_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        if store.recovery is None or store.recovery.rebuilt:
            raise SystemExit("the queues were rebuilt: nothing to measure")
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        opened.append(Opened(clock_s, cpu_s, len(store.queues()), descriptors))
        (crash if name == "crash" else MessageStore.shutdown)(store)
    return opened


def show_open(name: str, opened: list[Opened]) -> None:
    """Print a line with the fastest round."""
    clock_s, cpu_s, queues, descriptors = min(opened)
    figures = f"{clock_s:7.3f} s, {cpu_s:7.3f} s of CPU, {descriptors:6,} descriptors after it"
    print(f"open {queues:7,} queues, {name}: {figures}", flush=True)


def measure_flush(config: StoreConfig, queues: int) -> None:
    """Appends of 64 messages to a few queues while all queues are flushed."""
    store = new_store(config)
    store.start()
    for label in ("alone", "beside a flush of all queues"):
        flush = threading.Thread(target=time.sleep, args=(2,))
        if label != "alone":
            one_in_each(store, queues)
            flush = threading.Thread(target=store._queue_flush.flush_all)
        flush.start()
        times: list[float] = []
        started = time.perf_counter()
        while flush.is_alive() or len(times) < 200:
            begun = time.perf_counter()
            with contextlib.suppress(StoreBusy):
                store.append([message(number) for number in range(BATCH)])
            times.append(time.perf_counter() - begun)
            time.sleep(0.001)
        flush.join()
        times.sort()
        p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
        took = time.perf_counter() - started
        most = times[-1] * 1000
        print(f"append of 64, {label}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, most {most:.2f} ms, in {took:.1f} s")
    store.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--descriptors", type=int, default=None, help="limit of the process, as by ulimit -n")
    parser.add_argument("--realtime", action="store_true", help="open with a realtime priority")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.descriptors is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.descriptors, hard))
    print(f"descriptors allowed: {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}")
    for queues in arguments.queues:
        folder = Path(tempfile.mkdtemp(prefix="open-", dir=arguments.folder))
        config = StoreConfig(store_path_root_dir=folder / "store", mapped_file_size_commit_log=SEGMENT_BYTES)
        try:
            took, stop = write_queues(config, queues)
            print(f"write {queues:6,} queues: {took:.1f} s, flush and stop {stop:.1f} s")
            for name in ("clean", "crash"):
                show_open(name, measure_open(config, name, rounds=ROUNDS, is_realtime=arguments.realtime))
            measure_flush(config, queues)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
