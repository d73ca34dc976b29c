"""The program whose driver and workers are killed: a stream of a store into Parquet and into Delta.

    python -m tests.spark.exactly_once STORE DIRECTORY TOPIC [--end]

It prints a line for each batch that is in a table.  With ``--end`` it reads what there is, then writes what both
tables hold to ``DIRECTORY/parquet.arrow`` and ``DIRECTORY/delta.arrow``, and ends.  SIGUSR1 shows its threads.
"""

import argparse
import faulthandler
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark.session import close, session
from tests.spark.conftest import QUICK

COLUMNS = "topic,queueId,queueOffset,body"
APPLICATION = "exactly-once"
# A task whose worker is killed is tried again.
MASTER = "local[2,4]"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("directory", type=Path)
    parser.add_argument("topic")
    parser.add_argument("--end", action="store_true")
    given = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    spark = session(MASTER, "exactly-once", {**QUICK, "spark.sql.warehouse.dir": str(given.directory / "warehouse")})
    spark.sparkContext.setLogLevel("OFF")
    while not _attempt(spark, given):
        print("restarted", flush=True)
    if given.end:
        for name, table in (("parquet", _parquet(spark, given.directory)), ("delta", _delta(given.directory))):
            with (
                pa.OSFile(str(given.directory / f"{name}.arrow"), "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as out,
            ):
                out.write_table(table)
    close(spark)


def _attempt(spark: Any, given: argparse.Namespace) -> bool:
    """`_run`; false, too, where a query cannot even start: Spark plans it with a process that was killed while idle."""
    try:
        return _run(spark, given)
    except (PySparkException, Py4JJavaError) as error:
        print(error, file=sys.stderr, flush=True)
        return False


def _run(spark: Any, given: argparse.Namespace) -> bool:
    """Both queries, until one fails (false) or, with ``--end``, both have read everything."""
    directory = given.directory
    options = {"subscribe": given.topic, "startingOffsets": "earliest", "columns": COLUMNS}
    stream = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="400").load(given.store)
    trigger: dict[str, Any] = {"availableNow": True} if given.end else {"processingTime": "0 seconds"}
    delta = stream.writeStream.foreachBatch(lambda rows, batch: _to_delta(rows, batch, directory / "delta"))
    queries = [
        delta.option("checkpointLocation", str(directory / "delta-state")).trigger(**trigger).start(),
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "parquet-state"))
        .trigger(**trigger)
        .start(str(directory / "parquet")),
    ]
    while any(query.isActive for query in queries):
        if any(query.exception() is not None for query in queries):
            break
        time.sleep(0.1)
    failed = [str(query.exception()) for query in queries if query.exception() is not None]
    for query in queries:
        query.stop()
    for reason in failed:
        print(reason, file=sys.stderr, flush=True)
    return not failed


def _to_delta(rows: Any, batch: int, path: Path) -> None:
    """The batch, and its number with it, in one commit; a batch that is there already is left out."""
    try:
        done = DeltaTable(path).transaction_version(APPLICATION)
    except TableNotFoundError:
        done = None
    if done is None or done < batch:
        commit = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
        write_deltalake(path, rows.toArrow(), mode="append", commit_properties=commit)
    print(f"batch {batch}", flush=True)


def _parquet(spark: Any, directory: Path) -> pa.Table:
    """Read by Spark, which takes only the files that its sink's log has."""
    table: pa.Table = spark.read.parquet(str(directory / "parquet")).toArrow()
    return table


def _delta(directory: Path) -> pa.Table:
    return pa.table(DeltaTable(directory / "delta").to_pyarrow_table())


if __name__ == "__main__":
    main()
