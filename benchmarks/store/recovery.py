"""Speed of recovery: checking a log and rebuilding its ConsumeQueues, beside a walk record by record.

    python -m benchmarks.store.recovery [--log-mb 512] [--queues 16] [--queues-open 1000] [--folder FOLDER] [--rocketmq]

For records with a CRC of their own (enabledAppendPropCRC) and without, of 200 bytes and of 1 KiB, it writes a log
through the store and checks all of it with a warm page cache: the walk alone, then a whole recovery that makes the
dropped ConsumeQueues again.  Beside each is the same record by record.  Then it measures how long a store of many
queues takes to open.

With --rocketmq Apache RocketMQ recovers the same directory in turns with us: after a crash, without checkpoint and
ConsumeQueues, so it walks and dispatches the whole log as we do.  These rows are by the clock for both, JVM start not
counted.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.store.rocketmq_store import load_seconds
from sprocket.common.clock import SystemClock
from sprocket.remoting.codec.java_hash import java_hash_code
from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.flush.checkpoint import Checkpoint
from store.log.commit_log import CommitLog
from store.log.log_scan import ChunkScan, LogScan
from store.message_store import MessageStore, PendingMessage
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import Record, TagsCodes
from store.recovery.recovery import Recovery
from tests.compat import maven

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
    """Body that makes a record of `record_bytes`, its own CRC aside."""
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


class Measured(NamedTuple):
    """What one run went through, and the seconds of CPU that it took; of the clock, where that is compared."""

    records: int
    log_bytes: int
    reason: str
    seconds: float
    clock_seconds: float = 0.0


def walk(config: StoreConfig, *, by_record: bool) -> Measured:
    """Check every record of a log, no more."""
    log = CommitLog(config, RealDisk())
    log.load()
    started = time.process_time()
    scan = (LogScan if by_record else ChunkScan)(log, 0, check_crc=True)
    records = sum(1 if isinstance(found, Record) else len(found) for found in scan)
    seconds = time.process_time() - started
    log.close()
    return Measured(records, scan.end_offset, scan.reason, seconds)


def recover(config: StoreConfig, *, by_record: bool) -> Measured:
    """Recover a log without ConsumeQueues."""
    shutil.rmtree(config.consume_queue_path, ignore_errors=True)
    disk = RealDisk()
    log, table = CommitLog(config, disk), ConsumeQueueTable(config, disk)
    log.load()
    recovery = Recovery(
        log, table, Checkpoint(), TagsCodes(config.message_delay_level), check_crc=True, by_record=by_record
    )
    started, clock_started = time.process_time(), time.perf_counter()
    report = recovery.run(clean=False, usable=table.load())
    seconds, clock_seconds = time.process_time() - started, time.perf_counter() - clock_started
    log.close()
    table.close()
    return Measured(report.records, report.end_offset - report.start_offset, report.reason, seconds, clock_seconds)


def show(name: str, measured: Measured) -> float:
    """Print a line; return bytes a second."""
    rate = measured.log_bytes / measured.seconds
    cost_ns = measured.seconds / measured.records * 1e9
    print(
        f"{name:42} {rate / 1e9:7.3f} GB/s {measured.records / measured.seconds:12,.0f} records/s"
        f" {cost_ns:9.0f} ns/record {measured.seconds:7.2f} s",
        flush=True,
    )
    return rate


def measure_rocketmq(kind: str, config: StoreConfig) -> None:
    """Recover one directory in turns with Apache RocketMQ; the seconds of the clock, best of each."""
    ours: list[Measured] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        ours.append(recover(config, by_record=False))
        shutil.rmtree(config.consume_queue_path)
        (config.store_path_root_dir / "checkpoint").unlink(missing_ok=True)
        (config.store_path_root_dir / "abort").touch()
        try:
            seconds, end_offset = load_seconds(config)
        except maven.JavaMissingError as error:
            print(f"{kind}: Apache RocketMQ left out: {error}")
            return
        if end_offset != ours[-1].log_bytes:
            raise RuntimeError(f"{kind}: Apache RocketMQ ends the log at {end_offset}, we at {ours[-1].log_bytes}")
        theirs.append(seconds)
    best = min(ours, key=lambda measured: measured.clock_seconds)
    show(f"{kind}, in arrays, by the clock", best._replace(seconds=best.clock_seconds))
    show(f"{kind}, Apache RocketMQ, by the clock", best._replace(seconds=min(theirs)))
    print(f"{kind}: {min(theirs) / best.clock_seconds:.1f} times as fast as Apache RocketMQ")


def measure_walk(folder: Path, record_bytes: int, log_bytes: int, queues: int, *, sealed: bool, rocketmq: bool) -> None:
    """Both walks over logs of one record size, alone and with dispatch, in turns so that all see the same machine."""
    configs = {}
    for by_record, share in ((True, REFERENCE_SHARE), (False, 1)):
        root = folder / f"walk-{by_record}"
        configs[by_record] = StoreConfig(
            store_path_root_dir=root, mapped_file_size_commit_log=SEGMENT_BYTES, enabled_append_prop_crc=sealed
        )
        write_log(configs[by_record], record_bytes, log_bytes // share, queues)
    for name, run in (("walk", walk), ("walk and dispatch", recover)):
        best: dict[bool, Measured] = {}
        for _ in range(ROUNDS):
            for by_record, config in configs.items():
                measured = run(config, by_record=by_record)
                if by_record not in best or measured.seconds < best[by_record].seconds:
                    best[by_record] = measured
        kind = f"{record_bytes} B, {'CRC' if sealed else 'no CRC'}, {name}"
        rates = [show(f"{kind}, {'by record' if by else 'in arrays'}", best[by]) for by in (True, False)]
        print(f"{kind}: {rates[1] / rates[0]:.1f} times as fast")
    if rocketmq:
        measure_rocketmq(f"{record_bytes} B, {'CRC' if sealed else 'no CRC'}, walk and dispatch", configs[False])
    for config in configs.values():
        shutil.rmtree(config.store_path_root_dir)


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
    parser.add_argument("--rocketmq", action="store_true", help="measure Apache RocketMQ beside it, if Java is there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="recovery-", dir=arguments.folder))
    try:
        for record_bytes in (200, 1024):
            for sealed in (True, False):
                measure_walk(
                    folder, record_bytes, arguments.log_mb << 20, arguments.queues, sealed=sealed,
                    rocketmq=arguments.rocketmq,
                )  # fmt: skip
        measure_open(folder, arguments.queues_open)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
