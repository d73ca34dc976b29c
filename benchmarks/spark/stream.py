"""How long a micro-batch of a stream takes: batches of rows, empty ones, and a look at many queues.

``python -m benchmarks.spark.stream --rows 24000 --batches 20`` writes a store with the broker's own writer, streams
it from the first message into Spark's `noop` sink, and prints medians in milliseconds.  Everything is in the page
cache.  The first batches, in which Spark compiles, do not count.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spark.options.source_options import read_options
from spark.rows.row_batches import spark_schema
from spark.session import close, session
from spark.stream import QueueStreamReader
from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.message_store import MessageStore, PendingMessage

MEBIBYTE = 1024 * 1024
HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
BODY = b'{"device":"sensor-17","temperature":21.25,"pressure":1013.2,"note":"' + b"n" * 180 + b'"}'
# Batches that Spark warms up with.
WARM = 5
# Rows of a small batch.
SMALL = 300


def write_store(root: Path, rows: int, topics: int, queues: int) -> None:
    """`rows` messages, round about over all queues."""
    store = MessageStore(
        StoreConfig(
            store_path_root_dir=root,
            mapped_file_size_commit_log=1024 * MEBIBYTE,
            os_page_cache_busy_time_out_mills=600_000,  # others may use the machine
        ),
        clock=SystemClock(),
        notify=lambda run: run(),
    )
    store.start()
    for first in range(0, rows, 256):
        numbers = range(first, min(first + 256, rows))
        store.append([_message(number, topics, queues) for number in numbers])
    store.shutdown()


def _message(number: int, topics: int, queues: int) -> PendingMessage:
    properties = f"TAGS\x01tag{number % 7}\x02KEYS\x01key{number}\x02".encode()
    topic, queue_id = f"Topic{number % topics}", number // topics % queues
    return PendingMessage(topic, queue_id, BODY, properties, 0, 0, 0, 1_700_000_000_000 + number, HOST)


def look_ms(root: Path, rounds: int, more: Callable[[], None] | None = None) -> tuple[float, float, float]:
    """The first look at all queues, the median of the later ones, and a look after `more` was written (0: nothing)."""
    options = read_options({"path": str(root), "startingOffsets": "earliest"})
    reader = QueueStreamReader(options, spark_schema(options.columns))

    def look() -> float:
        begun = time.perf_counter()
        reader.latestOffset({}, reader.getDefaultReadLimit())
        return (time.perf_counter() - begun) * 1000

    first, idle = look(), statistics.median(look() for _ in range(rounds))
    if more is None:
        return first, idle, 0.0
    more()
    return first, idle, look()


def growth(directory: Path) -> dict[str, float]:
    """Looks at the queues of 10, 100 and 1,000 topics: the first, one that finds nothing new, and one after 300 new
    messages, which lie in as many queues as there are."""
    figures: dict[str, float] = {}
    for topics in (10, 100, 1000):
        root = directory / f"of-{topics}" / "store"
        write_store(root, 20_000, topics, 4)
        looks = look_ms(root, 10, partial(write_store, root, SMALL, topics, 4))
        for kind, took in zip(("first_look", "idle_look", "busy_look"), looks, strict=True):
            figures[f"{kind}_{topics * 4}_queues_ms"] = took
    return figures


def stream_ms(spark: Any, root: Path, rows: int) -> list[dict[str, int]]:
    """The durations that Spark tells of every batch, until the store is read."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    frame = spark.readStream.format("rocketmq").options(**options).load(str(root))
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()
    progress = query.recentProgress
    return [{**each.durationMs, "rows": each.numInputRows} for each in progress]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24_000, help="in a micro-batch")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--queues", type=int, default=38, help="over all six topics")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    given = parser.parse_args(arguments)
    figures: dict[str, float] = {}
    spark = session(given.master, "benchmark", {"spark.sql.streaming.numRecentProgressUpdates": "10000"})
    with tempfile.TemporaryDirectory() as directory:
        few, small = (Path(directory) / name / "store" for name in ("few", "small"))
        write_store(few, given.rows * (given.batches + WARM), 6, -(-given.queues // 6))
        write_store(small, SMALL * 30, 6, -(-given.queues // 6))
        batches = [each for each in stream_ms(spark, few, given.rows) if each["rows"] == given.rows][WARM:]
        figures["batch_ms"] = statistics.median(each["triggerExecution"] for each in batches)
        figures["batch_ms_worst"] = max(each["triggerExecution"] for each in batches)
        figures["of_that_tasks_ms"] = statistics.median(each["addBatch"] for each in batches)
        batches = [each for each in stream_ms(spark, small, SMALL) if each["rows"]][WARM:]
        figures["small_batch_ms"] = statistics.median(each["triggerExecution"] for each in batches)
        figures["look_38_queues_ms"] = look_ms(few, 50)[1]
        figures.update(growth(Path(directory)))
    close(spark)
    for name, value in figures.items():
        print(f"{name:28} {value:10.1f}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
