"""A process that keeps a table, to be killed: ``python -m tests.spark.tables.kept_table STORE TABLE FORMAT``.

Small batches, and a compaction after every few of them, so that a kill at any moment finds something half done.
"""

import sys
from pathlib import Path

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.job import TableJob
from spark.tables.workers import LocalWorkers
from tests.spark.tables.orders import SCHEMA

COMPACT_EVERY = 3


def declaration(table: Path, kind: TableFormat) -> TableDeclaration:
    return TableDeclaration("T", table, kind, BodyType("json", SCHEMA), batch_bytes=1 << 15)


def main() -> None:
    store, table, kind = Path(sys.argv[1]), Path(sys.argv[2]), TableFormat(sys.argv[3])
    print("loaded", flush=True)
    with TableJob(declaration(table, kind), [StoreDirectory(store, "broker-a")], LocalWorkers(1)) as job:
        batches = 0
        while job.run_batch():
            batches += 1
            if batches % COMPACT_EVERY == 0:
                job.compact(2)
        job.run_to_end()
    print("done", flush=True)


if __name__ == "__main__":
    main()
