"""How fast one process reads a CommitLog, beside memcpy and beside Parquet of the same rows.

``python -m benchmarks.spark_read --megabytes 256`` writes a store with the broker's own writer, the same rows as
Parquet, and prints a table.  Everything is in the page cache; each figure is the best of `--rounds`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark.columns import DEFAULT_COLUMNS
from spark.decode import DecodeOptions
from spark.filters import RowFilter
from spark.log_reader import read_span
from spark.options import SourceOptions
from spark.plan import plan
from spark.segment import Segment, segment_paths
from sprocket.common.clock import SystemClock
from store.config import StoreConfig
from store.message_store import MessageStore, PendingMessage

MEBIBYTE = 1024 * 1024
HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
FIXED = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "sysFlag")
READS: dict[str, Sequence[str]] = {
    "queueId": ("queueId",),
    "6 fixed columns": FIXED,
    "body": ("body",),
    "topic, tags": ("topic", "tags"),
    "default 9 columns": DEFAULT_COLUMNS,
}


def write_store(root: Path, size_bytes: int) -> int:
    """Six topics, JSON bodies of 260 to 650 bytes, tags and keys; returns the number of records."""
    config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=max(size_bytes, 64 * MEBIBYTE))
    store = MessageStore(config, clock=SystemClock(), notify=lambda run: run())
    store.start()
    noise = [json.dumps(_reading(generator)) for generator in [np.random.default_rng(1)] for _ in range(20_000)]
    count = 0
    while store.wrote_offset < size_bytes - 2 * MEBIBYTE:
        store.append([_message(number, noise) for number in range(count, count + 256)])
        count += 256
    store.shutdown()
    return count


def _reading(generator: np.random.Generator) -> dict[str, object]:
    values = generator.integers(0, 1_000_000, 4).tolist()
    return {
        "device": f"sensor-{values[0] % 5000}",
        "temperature": values[1] / 1000,
        "pressure": values[2] / 100,
        "status": "nominal" if values[3] % 10 else "degraded",
        "sequence": values[3],
    }


def _message(number: int, noise: list[str]) -> PendingMessage:
    """The body is a JSON list of readings, of 2 to 5; hardly two are equal."""
    properties = f"UNIQ_KEY\x017F0000012A139A0C{number:016X}\x02KEYS\x01key-{number}\x02TAGS\x01tag-{number % 20}\x02"
    topic, queue_id = f"topic-{number % 6}", number % 7
    at = number * 7919 % (len(noise) - 5)
    body = ("[" + ",".join(noise[at : at + 2 + number % 4]) + "]").encode()
    born = 1_700_000_000_000 + number
    return PendingMessage(topic, queue_id, body, properties.encode(), number % 20, 0, 0, born, HOST)


def read_columns(root: Path, columns: Sequence[str]) -> int:
    """Decode `columns` of the whole store in this process; returns the rows."""
    rows = RowFilter()
    spans = [span for task in plan(SourceOptions(paths=(str(root),)), rows) for span in task]
    return sum(count for span in spans for _, count in read_span(span, columns, rows, DecodeOptions()))


def write_parquet(root: Path, path: Path) -> None:
    """The default columns of the store as Parquet, as pyarrow writes it by default (snappy)."""
    rows = RowFilter()
    columns = [*DEFAULT_COLUMNS, "sysFlag"]
    batches = [
        pa.RecordBatch.from_arrays(arrays, names=columns)
        for task in plan(SourceOptions(paths=(str(root),)), rows)
        for span in task
        for arrays, _ in read_span(span, columns, rows, DecodeOptions())
    ]
    pq.write_table(pa.Table.from_batches(batches), path)


def best(rounds: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of `rounds`."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Write, measure, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-read-") as directory:
        root, parquet = Path(directory) / "store", Path(directory) / "rows.parquet"
        count = write_store(root, options.megabytes * MEBIBYTE)
        write_parquet(root, parquet)
        _measure(root, parquet, count, options.rounds)


def _measure(root: Path, parquet: Path, count: int, rounds: int) -> None:
    start, path = segment_paths(root / "commitlog")[0]
    with Segment(path, start) as segment:
        size = segment.walk(0, segment.size).stop
        copied = _copy_time(segment, size, rounds)
        walked = best(rounds, lambda: segment.walk(0, segment.size))
    print(f"{count:,} records, {size / 1e6:,.0f} MB of log, {parquet.stat().st_size / 1e6:,.0f} MB of Parquet\n")
    print("| what is read | GB/s of log | against memcpy | against pyarrow Parquet, one thread |")
    print("|---|---|---|---|")
    _row("memcpy", size, copied, copied, None)
    _row("walk of the records", size, walked, copied, None)
    for name, columns in READS.items():
        took = best(rounds, lambda columns=columns: read_columns(root, columns))
        names = list(columns)
        compared = best(rounds, lambda names=names: pq.read_table(parquet, columns=names, use_threads=False))
        _row(name, size, took, copied, compared)


def _copy_time(segment: Segment, size: int, rounds: int) -> float:
    source = np.frombuffer(segment.data, np.uint8, size)
    target = source.copy()  # its pages exist before the first round
    return best(rounds, lambda: np.copyto(target, source))


def _row(name: str, size: int, took: float, copied: float, compared: float | None) -> None:
    against = "" if compared is None else f"{compared / took:.2f}x"
    print(f"| {name} | {size / took / 1e9:.2f} | {copied / took:.2f} | {against} |", flush=True)


if __name__ == "__main__":
    main()
