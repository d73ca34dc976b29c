"""The sink against a real broker, and the retries of a task against a producer that fails."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from spark.options.sink_options import SinkOptions, read_sink_options
from spark.write.outgoing import outgoing
from spark.write.sink import MessageStreamWriter, MessageWriter, Sent, SinkTask, WriteFailed, send_rows
from sprocket.client.errors import BrokerRefused, NameServerUnreachable, RemotingTimeout
from sprocket.client.message import Message, MessageQueue
from sprocket.client.producer import Producer
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.testing import Broker
from tests.remoting.tls_files import Files
from tests.spark.conftest import read_rows
from tests.sprocket_cli.programs import BROKER_FLAGS, server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("sink")) as broker:
        yield broker


class FailingProducer:
    """Takes every message once the failures are used up."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures
        self.no_route = 0
        self.batches: list[tuple[list[bytes], MessageQueue | None]] = []

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        return await self.send_batch([message], queue=queue)

    async def send_batch(self, messages: list[Message], *, queue: MessageQueue | None = None) -> SendResult:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(([message.body for message in messages], queue))
        return SendResult(SendStatus.SEND_OK, "", "", queue or MessageQueue("T", "b", 0), 0)

    async def queues(self, topic: str) -> list[MessageQueue]:
        if self.no_route:
            self.no_route -= 1
            raise NameServerUnreachable("no name server")
        return [MessageQueue(topic, "b", number) for number in range(4)]


def task(producer: FailingProducer, **options: Any) -> SinkTask:
    async def no_pause(seconds: float) -> None:
        assert seconds > 0

    return SinkTask(cast(Producer, producer), SinkOptions("n:1", topic="T", **options), no_pause)


def rows(**columns: list[Any]) -> Any:
    return outgoing(pa.RecordBatch.from_pydict(columns), SinkOptions("n:1", topic="T"), 0)


async def test_what_may_pass_is_sent_again_and_counted() -> None:
    producer = FailingProducer([RemotingTimeout("late"), RemotingTimeout("late")])
    sink = task(producer, retries=2)
    await sink.send(rows(body=["a", "bc"]))
    assert (sink.sent.messages, sink.sent.size_bytes, sink.sent.retried) == (2, 3, 2)
    assert [bodies for bodies, _ in producer.batches] == [[b"a", b"bc"]]


@pytest.mark.parametrize(
    "failures",
    [[BrokerRefused(13, "too large", "b:1")], [RemotingTimeout("late")] * 3],
    ids=["refused", "retries over"],
)
async def test_the_first_cause_and_the_count_are_named(failures: list[Exception]) -> None:
    producer = FailingProducer([])
    sink = task(producer, retries=2)
    await sink.send(rows(body=["x"] * 5))
    producer.failures = list(failures)
    with pytest.raises(WriteFailed, match=rf"({failures[0]}).*sent=5 bytes=5".replace("(13)", r"\(13\)")):
        await sink.send(rows(body=["y"]))


async def test_rows_of_one_key_stay_in_order_while_others_fail() -> None:
    producer = FailingProducer([RemotingTimeout("late")] * 3)
    sink = task(producer, batch_max_bytes=1200, retries=5)
    await sink.send(rows(body=[f"{n}" for n in range(60)], shardingKey=[f"k{n % 7}" for n in range(60)]))
    sent: dict[int, list[int]] = {}
    for bodies, queue in producer.batches:
        assert queue is not None
        sent.setdefault(queue.queue_id, []).extend(map(int, bodies))
    assert sorted(number for numbers in sent.values() for number in numbers) == list(range(60))
    for numbers in sent.values():
        assert numbers == sorted(numbers)
    assert len({queue for numbers in sent.values() for queue in {n % 7 for n in numbers}}) == 7


async def test_a_route_that_nobody_tells_just_now_is_asked_for_again() -> None:
    """Of rows with a sharding key the task itself needs it."""
    producer = FailingProducer([])
    producer.no_route = 2
    sink = task(producer, retries=2)
    await sink.send(rows(body=["a", "b"], shardingKey=["k", "k"]))
    assert (sink.sent.messages, sink.sent.retried) == (2, 2)
    producer.no_route = 3
    with pytest.raises(WriteFailed, match="no name server; sent=0"):
        await task(producer, retries=2).send(rows(body=["a"], shardingKey=["k"]))


async def test_small_batches_and_delayed_rows_alone() -> None:
    producer = FailingProducer([])
    sink = task(producer, batch_max_bytes=2000)
    await sink.send(rows(body=["x" * 500] * 4 + ["y" * 3000], delayTimeLevel=[None, None, 2, None, None]))
    assert sorted(len(bodies) for bodies, _ in producer.batches) == [1, 1, 1, 2]


def test_a_broker_has_what_was_sent(broker: Broker) -> None:
    broker.create_topic("Direct", 4)
    batches = [
        pa.RecordBatch.from_pydict({"body": [f"{part}-{n}" for n in range(700)], "tags": ["t"] * 700})
        for part in range(3)
    ]
    sent = asyncio.run(send_rows(iter(batches), SinkOptions(broker.namesrv, topic="Direct")))
    assert sent.messages == 2100 and sent.weak == 0
    found = read_rows(broker.store, topics=frozenset({"Direct"}))
    assert sorted(row["body"] for row in found) == sorted(f"{p}-{n}".encode() for p in range(3) for n in range(700))


def test_a_broker_that_demands_tls_and_a_certificate(tmp_path: Path) -> None:
    files = Files(tmp_path / "tls")
    certificate, key = files.issue("server", "localhost", "127.0.0.1")
    own, own_key = files.issue("spark")
    settings = {
        "tls.server.mode": "enforcing", "tls.server.certPath": certificate, "tls.server.keyPath": key,
        "tls.server.need.client.auth": "require", "tls.server.trustCertPath": files.ca,
        # The broker asks the name server.
        "tls.client.trustCertPath": files.ca, "tls.client.certPath": certificate, "tls.client.keyPath": key,
    }  # fmt: skip
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    store = tmp_path / "store"
    with server(
        tmp_path, "standalone", "--store", str(store), "--port", "0", "--namesrv-port", "0", *BROKER_FLAGS, *flags
    ) as broker:
        given = {
            "namesrvAddr": str(broker.facts["namesrvAddr"]), "topic": "Secure", "useTLS": "true",
            "tlsTrustCertPath": str(files.ca), "tlsClientCertPath": str(own), "tlsClientKeyPath": str(own_key),
        }  # fmt: skip
        rows = pa.RecordBatch.from_pydict({"body": ["a", "b"]})
        assert asyncio.run(send_rows(iter([rows]), read_sink_options(given))).messages == 2
        assert len(read_rows(store, topics=frozenset({"Secure"}))) == 2


def test_the_commit_says_what_all_tasks_have_sent(capsys: pytest.CaptureFixture[str]) -> None:
    schema = StructType().add("body", "binary")
    writer = MessageWriter(SinkOptions("n:1", topic="T"), schema)
    writer.commit([Sent(2, 30, 1, 0), Sent(3, 12, 0, 3)])
    assert "sent=5 bytes=42 retried=1 weak=3 tasks=2" in capsys.readouterr().err
    writer.abort([Sent(2, 30, 1, 0), None])
    assert "event=rocketmq_write state=failed sent=2 bytes=30 retried=1 weak=0 tasks=1\n" in capsys.readouterr().err
    MessageStreamWriter(SinkOptions("n:1", topic="T"), schema).commit([Sent(1, 1)], 7)
    assert "batch=7 sent=1" in capsys.readouterr().err


@pytest.mark.spark
def test_a_frame_is_written_and_read_back(
    spark_session: Any, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("Written", 4)
    frame = spark_session.range(500).selectExpr(
        "'Written' AS topic", "to_json(struct(id)) AS body", "concat('k', id) AS keys", "'A' AS tags",
        "map('n', string(id)) AS properties", "string(id % 5) AS shardingKey",
    )  # fmt: skip
    write = frame.write.format("rocketmq").option("namesrvAddr", broker.namesrv)
    write.mode("append").save()
    read = spark_session.read.format("rocketmq").option("subscribe", "Written").option("includeHeaders", "true")
    rows = read.load(str(broker.store)).orderBy("physicalOffset").collect()
    assert sorted(json.loads(bytes(row["body"]))["id"] for row in rows) == list(range(500))
    assert all(row["properties"]["n"] == row["keys"][1:] and row["tags"] == "A" for row in rows)
    assert max(Counter(row["queueId"] for row in rows).values()) < 500
    with pytest.raises(PySparkException, match="unknown column 'bdy'; did you mean 'body'"):
        spark_session.sql("SELECT 'x' AS bdy").write.format("rocketmq").option(
            "namesrvAddr", broker.namesrv
        ).mode("append").save()  # fmt: skip
    with pytest.raises(PySparkException, match="append"):
        write.mode("overwrite").save()


@pytest.mark.spark
def test_a_failed_task_fails_the_write_and_says_how_much_was_sent(spark_session: Any, broker: Broker) -> None:
    broker.create_topic("Half", 1)
    spark_session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark_session.range(0, 250, 1, 1).selectExpr("if(id = 220, '', string(id)) AS body")
        with pytest.raises(PySparkException, match=r"row 220 of this task: the body is empty"):
            frame.write.format("rocketmq").option("namesrvAddr", broker.namesrv).option("topic", "Half").mode(
                "append"
            ).save()
    finally:
        spark_session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16384")
    assert len(read_rows(broker.store, topics=frozenset({"Half"}))) % 100 == 0


@pytest.mark.spark
def test_a_stream_is_written(spark_session: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("Streamed", 2)
    folder = tmp_path / "in"
    spark_session.range(40).selectExpr("string(id) AS body").write.parquet(str(folder))
    query = (
        spark_session.readStream.schema("body string").parquet(str(folder)).writeStream.format("rocketmq")
        .option("namesrvAddr", broker.namesrv).option("topic", "Streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    found = read_rows(broker.store, topics=frozenset({"Streamed"}))
    assert sorted(int(row["body"]) for row in found) == list(range(40))
