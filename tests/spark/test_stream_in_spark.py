"""Streams and reads by offset through Spark itself: few tests, one session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from spark.session import register
from tests.spark.store_builder import Row, StoreBuilder

pytestmark = pytest.mark.spark


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "broker-a" / "store")
    builder.extend(Row(queue_id=number % 3, body=b"%d" % number) for number in range(600))
    builder.write()
    return builder


class Sink:
    """Takes batches into a dictionary by their number, as a table with a commit log would."""

    def __init__(self, spark: Any, path: Path, state: Path, **options: str) -> None:
        self.batches: dict[int, list[int]] = {}
        self._stream = spark.readStream.format("rocketmq").options(**options).load(str(path))
        self._state = state

    def run(self) -> Any:
        """What there is; returns the query, which has ended."""
        writer = self._stream.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._state)).start()
        query.awaitTermination()
        return query

    def _take(self, rows: Any, number: int) -> None:
        self.batches[number] = sorted(int(row["body"]) for row in rows.collect())

    def bodies(self) -> Iterator[int]:
        for number in sorted(self.batches):
            yield from self.batches[number]


def test_a_stream_goes_on_from_its_checkpoint(spark_session: Any, builder: StoreBuilder, tmp_path: Path) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "250"}
    sink = Sink(spark_session, builder.root, tmp_path / "state", **options)
    query = sink.run()
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [250, 250, 100]
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [0, 250, 250, 100]
    builder.extend([Row(body=b"600"), Row(topic="New", body=b"601")])
    builder.write()
    again = Sink(spark_session, builder.root, tmp_path / "state", **options)
    assert not set(again.batches) & set(sink.batches)
    again.run()
    assert min(again.batches) == 4
    assert sorted([*sink.bodies(), *again.bodies()]) == list(range(602))


def test_lost_messages_stop_a_query_by_name(spark_session: Any, builder: StoreBuilder, tmp_path: Path) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    Sink(spark_session, builder.root, tmp_path / "state", **options).run()
    later = StoreBuilder(builder.root, first_offset=1 << 20)
    later.start_queue_at("T", 0, 900)
    later.extend(Row() for _ in range(5))
    for path in [*(builder.root / "commitlog").iterdir(), *(builder.root / "consumequeue" / "T" / "0").iterdir()]:
        path.unlink()
    later.write()
    with pytest.raises(PySparkException, match=r"broker-a/T/0 \[200, 900\) expired.*failOnDataLoss"):
        Sink(spark_session, builder.root, tmp_path / "state", **options).run()
    lenient = Sink(spark_session, builder.root, tmp_path / "state", failOnDataLoss="false", columns="queueOffset,body")
    lenient._take = lambda rows, number: lenient.batches.update(  # type: ignore[method-assign]  # bodies are empty
        {number: [row["queueOffset"] for row in rows.collect()]}
    )
    lenient.run()
    assert sorted(lenient.bodies()) == list(range(900, 905))


def test_a_batch_from_offset_to_offset(spark_session: Any, builder: StoreBuilder) -> None:
    frame = (
        spark_session.read.format("rocketmq")
        .option("startingOffsets", '{"broker-a": {"T": {"0": 50, "1": -1}}}')
        .option("endingOffsets", '{"T": {"0": 60, "2": 3}}')
        .load(str(builder.root))
    )
    found = {(row["queueId"], row["queueOffset"]) for row in frame.select("queueId", "queueOffset").collect()}
    assert found == {(0, offset) for offset in range(50, 60)} | {(2, offset) for offset in range(3)}
    assert frame.where("queueOffset < 55 AND queueId = 0").count() == 5


def test_no_plan_and_no_error_shows_a_key(spark_session: Any) -> None:
    frame = (
        spark_session.read.format("rocketmq")
        .options(namesrvAddr="127.0.0.1:1", accessKey="who-it-is", secretKey="what-nobody-sees", numRetries="0")
        .load()
    )
    shown = frame._jdf.queryExecution().analyzed().toString()
    with pytest.raises(PySparkException, match="no name server answers") as caught:
        frame.count()
    assert "what-nobody-sees" not in shown + str(caught.value)


def test_streams_add_nothing_to_what_all_queries_share(
    spark_session: Any, builder: StoreBuilder, tmp_path: Path
) -> None:
    """The environment of the source is a HashMap without a lock: two streams that added to it at once broke it."""
    before = dict(spark_session.sparkContext.environment)
    register(spark_session)
    assert spark_session.sparkContext.environment == before
    source = spark_session._jsparkSession.sessionState().dataSourceManager().lookupDataSource("rocketmq")
    shared = source.dataSourceCls().envVars()
    names = set(shared.keySet().toArray())
    Sink(spark_session, builder.root, tmp_path / "state", startingOffsets="earliest").run()
    assert shared["SPARK_PYTHON_RUNTIME"], "the stream put its own value there"
    assert set(shared.keySet().toArray()) == names
