"""How fast recovery checks a log and makes its ConsumeQueues anew, beside the walk record by record.

    python -m benchmarks.recovery [--log-mb 512] [--queues 16] [--queues-open 1000] [--folder FOLDER]

For records of 200 bytes and of 1 KiB it writes a log through the store, drops the ConsumeQueues, and recovers all
of it with a warm page cache, the body CRCs checked; then it measures how long a store of many queues takes to open.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from remoting.java_hash import java_hash_code
from sprocket.common.clock import SystemClock
from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.config import StoreConfig
from store.consume_queue_table import ConsumeQueueTable
from store.disk import RealDisk
from store.message_store import MessageStore, PendingMessage
from store.record import TagsCodes
from store.recovery import Recovery, RecoveryReport

HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
TAGS = ("created", "paid", "shipped", "returned")
BATCH = 64
# The walk record by record is measured on this part of the log: it is linear, and slow.
REFERENCE_SHARE = 8
ROUNDS = 3
# Small, so that cutting the last one, whatever the file system makes of it, costs little beside the walk.
SEGMENT_BYTES = 64 << 20


def messages(body_bytes: int, first: int, queues: int, topics: int = 4) -> list[PendingMessage]:
    """One batch, as a producer's client writes properties."""
    batch = []
    for number in range(first, first + BATCH):
        tag = TAGS[number // 7 % len(TAGS)]
        properties = f"UNIQ_KEY\x01AC11000100002A139A0C{number:012X}\x02TAGS\x01{tag}\x02"
        topic, queue_id = f"Orders{number % topics}", number // topics % (queues // topics)
        batch.append(
            PendingMessage(
                topic, queue_id, number.to_bytes(8, "big").ljust(body_bytes, b"."), properties.encode(),
                java_hash_code(tag), 0, 0, 1_700_000_000_000, HOST,
            )
        )  # fmt: skip
    return batch


def body_bytes_for(record_bytes: int) -> int:
    """Body that makes a record of `record_bytes`."""
    message = messages(8, 0, 16)[0]
    return max(8, record_bytes - 91 - len(message.topic) - len(message.properties))


def write_log(config: StoreConfig, record_bytes: int, log_bytes: int, queues: int) -> int:
    """Write a log of about `log_bytes`; return its number of messages."""
    store = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
    store.start()
    body_bytes, number = body_bytes_for(record_bytes), 0
    while store.wrote_offset < log_bytes:
        store.append(messages(body_bytes, number, queues))
        number += BATCH
    store.shutdown()
    return number


def recover(config: StoreConfig, *, by_record: bool) -> tuple[RecoveryReport, float]:
    """Recover a log without ConsumeQueues; return the report and the seconds of CPU."""
    shutil.rmtree(config.consume_queue_path, ignore_errors=True)
    disk = RealDisk()
    log, table = CommitLog(config, disk), ConsumeQueueTable(config, disk)
    log.load()
    recovery = Recovery(
        log, table, Checkpoint(), TagsCodes(config.message_delay_level), check_crc=True, by_record=by_record
    )
    started = time.process_time()
    report = recovery.run(clean=False, usable=table.load())
    seconds = time.process_time() - started
    log.close()
    table.close()
    return report, seconds


def best(run: Callable[[], tuple[RecoveryReport, float]]) -> tuple[RecoveryReport, float]:
    return min((run() for _ in range(ROUNDS)), key=lambda result: result[1])


def show(name: str, report: RecoveryReport, seconds: float) -> float:
    """Print a line; return bytes a second."""
    rate = (report.end_offset - report.start_offset) / seconds
    cost_ns = seconds / report.records * 1e9
    print(
        f"{name:32} {rate / 1e9:7.3f} GB/s {report.records / seconds:12,.0f} records/s {cost_ns:9.0f} ns/record"
        f" {seconds:7.2f} s"
    )
    return rate


def measure_walk(folder: Path, record_bytes: int, log_bytes: int, queues: int) -> None:
    """Both walks over logs of one record size."""
    rates = []
    for by_record, share in ((True, REFERENCE_SHARE), (False, 1)):
        root = folder / f"walk-{record_bytes}-{by_record}"
        config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=SEGMENT_BYTES)
        written = write_log(config, record_bytes, log_bytes // share, queues)
        report, seconds = best(lambda config=config, by_record=by_record: recover(config, by_record=by_record))  # type: ignore[misc]
        if report.records != written:
            raise SystemExit(f"recovered {report.records} records of {written}: {report.reason}")
        name = f"{record_bytes} B, {'record by record' if by_record else 'in arrays'}"
        rates.append(show(name, report, seconds))
        shutil.rmtree(root)
    print(f"{record_bytes} B: {rates[1] / rates[0]:.1f} times as fast")


def measure_open(folder: Path, queues: int) -> None:
    """Open a store of many queues after a clean stop and after a crash."""
    config = StoreConfig(store_path_root_dir=folder / "open")
    write_log(config, 200, queues * 200 * 20, queues)
    for name in ("clean", "crash"):
        if name == "crash":
            (config.store_path_root_dir / "abort").touch()
        store = MessageStore(config, clock=SystemClock(), notify=lambda run: None)
        started = time.perf_counter()
        store.start()
        print(f"open {len(store.queues())} queues, {name}: {time.perf_counter() - started:.3f} s")
        store.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log-mb", type=int, default=512)
    parser.add_argument("--queues", type=int, default=16, help="a multiple of 4")
    parser.add_argument("--queues-open", type=int, default=1000, help="a multiple of 4")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="recovery-", dir=arguments.folder))
    try:
        for record_bytes in (200, 1024):
            measure_walk(folder, record_bytes, arguments.log_mb << 20, arguments.queues)
        measure_open(folder, arguments.queues_open)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
