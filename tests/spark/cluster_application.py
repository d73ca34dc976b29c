"""What `test_cluster` submits: counts by topic, and who read them."""

import json
import os
import sys
from collections.abc import Iterable, Iterator

from pyspark.sql import Row

import sprocket.spark

spark = sprocket.spark.session()
frame = spark.read.format("rocketmq").option("minPartitions", "4").load(sys.argv[1])


def of_this_process(rows: Iterable[Row]) -> Iterator[tuple[str, int, int]]:
    """Where `sprocket` was found, which executor asks (each has a process that its Python workers come from), and how
    many rows it has."""
    found = next((path for path in sys.path if "sprocket" in path and path.endswith(".zip")), "no wheel")
    yield found.rpartition("/")[2], os.getppid(), sum(1 for _ in rows)


# No mapInArrow: PySpark wants pandas for it, and executors have only what the project depends on.
places = frame.select("queueId").rdd.mapPartitions(of_this_process).collect()
result = {
    "topics": {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()},
    "wheels": sorted({wheel for wheel, _, _ in places}),
    "executors": len({executor for _, executor, _ in places}),
    "rows": sum(count for _, _, count in places),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "master": spark.sparkContext.master,
}
print("RESULT " + json.dumps(result))
spark.stop()
