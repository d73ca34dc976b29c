"""What `test_cluster` submits: counts by topic, and who read them."""

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa

import sprocket.spark

spark = sprocket.spark.session()
frame = spark.read.format("rocketmq").option("minPartitions", "4").load(sys.argv[1])


def of_this_process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where `sprocket` was found, and which executor asks: each has a process that its Python workers come from."""
    found = next((path for path in sys.path if "sprocket" in path and path.endswith(".zip")), "no wheel")
    count = sum(batch.num_rows for batch in batches)
    rows = {"wheel": [found.rpartition("/")[2]], "executor": [os.getppid()], "count": [count]}
    yield pa.RecordBatch.from_pydict(rows)


places = frame.mapInArrow(of_this_process, "wheel string, executor long, count long").collect()
result = {
    "topics": {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()},
    "wheels": sorted({row["wheel"] for row in places}),
    "executors": len({row["executor"] for row in places}),
    "rows": sum(row["count"] for row in places),
    "master": spark.sparkContext.master,
}
print("RESULT " + json.dumps(result))
spark.stop()
