"""Reading over the wire from a real broker: the same rows as the directory reader's, and clear ends."""

import asyncio
import datetime
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.decode.columns import COLUMN_TYPES
from spark.options.source_options import SourceOptions, read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from spark.stream import QueueStreamReader
from sprocket.client.errors import BrokerRefused, ClientError, NameServerUnreachable, TopicNotFound
from sprocket.client.message import Message
from sprocket.common.errors import ConfigError, CorruptRecord
from sprocket.remoting.codes import ResponseCode
from sprocket.sync import Producer
from sprocket.testing import Broker
from sprocket_cli.processes.tls_folder import HOSTS, TlsFolder
from tests.broker.rig import TestClient
from tests.broker.test_batch_topics import KEY, create_batch_topic, members, send
from tests.spark.test_stream import Stream

ALL_COLUMNS = ",".join(COLUMN_TYPES)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> TlsFolder:
    folder = TlsFolder(tmp_path_factory.mktemp("keys"))
    folder.create(HOSTS, datetime.datetime.now(datetime.UTC), 30)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, keys: TlsFolder) -> Iterator[Broker]:
    properties = {
        "enablePropertyFilter": "true",
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(keys.path / "broker.pem"),
        "tls.server.keyPath": str(keys.path / "broker.key"),
    }
    with Broker(tmp_path_factory.mktemp("wire"), properties=properties, start_limit_s=60) as broker:
        for topic in ("Flights", "Long", "Empty"):
            broker.create_topic(topic, 4)
        with Producer("wire", broker.namesrv) as producer:
            for result in producer.send_many(messages(3000)):
                assert result.queue_offset >= 0
            for size in (300_000, 2_000_000, 256, 3_500_000):
                producer.send(Message("Long", bytes(range(256)) * (size // 256)))
            producer.send(Message("Long", b"a text that repeats itself " * 2000))  # compressed by the producer
        yield broker


def messages(count: int) -> Iterator[Message]:
    for index in range(count):
        properties = {"level": str(index % 10)} if index % 3 else None
        yield Message(
            "Flights",
            b"x" * (1 + index % 300),
            tags=["AA", "UA", ""][index % 3],
            keys=f"k{index}",
            properties=properties,
        )


def read(options: SourceOptions) -> list[dict[str, Any]]:
    """All tasks of a batch query, each as Spark would send it to a worker."""
    reader = QueueBatchReader(options, spark_schema(options.columns))
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions():
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: int(row.get("physicalOffset", 0)))


def wire(broker: Broker, **options: str) -> list[dict[str, Any]]:
    return read(read_options({"namesrvAddr": broker.namesrv, "columns": ALL_COLUMNS, **options}))


def files(broker: Broker, **options: str) -> list[dict[str, Any]]:
    name = broker_name(broker)
    return read(read_options({"path": f"{name}={broker.store}", "columns": ALL_COLUMNS, **options}))


def broker_name(broker: Broker) -> str:
    return str(wire(broker, subscribe="Long", columns="brokerName")[0]["brokerName"])


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "Flights"},
        {"subscribe": "Long"},
        {"subscribe": "Long", "inflateBodies": "true"},
        {"subscribePattern": "Fl.*|Lo.*|Em.*", "minPartitions": "5"},
        {"startingOffsets": '{"Flights": {"0": 100, "1": -1, "2": -2}}', "subscribe": "Flights"},
        {"endingOffsets": '{"Flights": {"0": 100, "1": 0}}', "assign": '{"Flights": [0, 1]}'},
        {"subscribe": "Empty", "startingOffsets": "earliest"},
    ],
)
def test_rows_are_those_of_the_files(broker: Broker, options: dict[str, str]) -> None:
    by_offset = {"startingOffsets": "earliest", **options}
    assert wire(broker, **options) == files(broker, **by_offset)
    assert bool(wire(broker, **options)) == ("Empty" not in options.get("subscribe", ""))


async def _send_batches(broker: Broker, sizes: Sequence[int]) -> None:
    """Records of so many messages in queue 0 of the topic Orders, which keeps batches as one record."""
    client = TestClient(broker.address)
    await create_batch_topic(client)
    first = 0
    for size in sizes:
        body = members(*[b"%d" % (first + place) for place in range(size)])
        assert (await send(client, body, UNIQ_KEY=KEY)).code == ResponseCode.SUCCESS
        first += size
    await client.remoting.close()


def test_batches_that_are_one_record(broker: Broker) -> None:
    asyncio.run(_send_batches(broker, [3, 20, 1, 7, 40, 2]))
    for begin, end in [(0, 73), (1, 2), (5, 25), (31, 72)]:
        options = {
            "subscribe": "Orders",
            "startingOffsets": json.dumps({"Orders": {"0": begin}}),
            "endingOffsets": json.dumps({"Orders": {"0": end}}),
        }
        rows = wire(broker, **options)
        assert [(row["queueOffset"], row["body"]) for row in rows] == [(at, b"%d" % at) for at in range(begin, end)]
        assert rows == files(broker, **options)


def test_times(broker: Broker) -> None:
    every = wire(broker, subscribe="Flights")
    moment = every[1700]["storeTimestamp"]
    begin = str(round(moment.timestamp() * 1000))
    found = wire(broker, subscribe="Flights", startingTimestamp=begin)
    assert found == [row for row in every if row["storeTimestamp"] >= moment]
    assert wire(broker, subscribe="Flights", endingTimestamp=begin) == every[: len(every) - len(found)]


def test_what_brokers_filter(broker: Broker) -> None:
    every = wire(broker, subscribe="Flights")
    assert wire(broker, subscribe="Flights", subExpression="AA || XX") == [row for row in every if row["tags"] == "AA"]
    found = wire(broker, subscribe="Flights", subExpression="level > 7", expressionType="sql92")
    assert found == [row for row in every if int(dict(row["properties"]).get("level", 0)) > 7]


def test_a_body_that_is_not_what_was_sent(broker: Broker) -> None:
    broker.create_topic("Flipped", 1)
    with Producer("flipped", broker.namesrv) as producer:
        for number in range(3):
            producer.send(Message("Flipped", b"a body of its own: %d" % number))
    every = wire(broker, subscribe="Flipped")
    log = min((broker.store / "commitlog").iterdir())
    at = log.read_bytes().index(b"a body of its own: 1")
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"A")
    damaged = every[1]["physicalOffset"]
    with pytest.raises(CorruptRecord, match=f"physical offset {damaged}: the CRC does not hold"):
        wire(broker, subscribe="Flipped")
    assert wire(broker, subscribe="Flipped", mode="DROPMALFORMED") == [every[0], every[2]]
    unchecked = wire(broker, subscribe="Flipped", checkCRC="false", columns="physicalOffset,body")
    assert unchecked[1] == {"physicalOffset": damaged, "body": b"A body of its own: 1"}
    assert len(wire(broker, subscribe="Flipped", columns="physicalOffset,topic")) == 3


def test_a_stream(broker: Broker) -> None:
    broker.create_topic("Stream", 4)
    options = {"namesrvAddr": broker.namesrv, "subscribe": "Stream", "maxOffsetsPerTrigger": "300"}
    stream = Stream("", **options)
    with Producer("stream", broker.namesrv) as producer:
        for part in range(3):
            list(producer.send_many(Message("Stream", f"{part}-{index}".encode()) for index in range(500)))
            stream.drain()
            stream.restart()
            assert sorted(row["body"] for row in stream.rows) == sorted(
                f"{done}-{index}".encode() for done in range(part + 1) for index in range(500)
            )
    assert json.dumps(stream.start).count("Stream") == 1


def test_what_is_wrong_has_a_clear_end(broker: Broker) -> None:
    with pytest.raises(TopicNotFound, match="Nowhere has no route"):
        wire(broker, subscribe="Nowhere")
    with pytest.raises(NameServerUnreachable, match=r"no name server answers: .*127.0.0.1:1: .*namesrvAddr"):
        read(read_options({"namesrvAddr": "127.0.0.1:1", "numRetries": "0"}))
    with pytest.raises(BrokerRefused, match="SQL"):
        wire(broker, subscribe="Flights", subExpression="level >", expressionType="SQL92")


def test_a_broker_that_goes_away_ends_a_batch_and_not_a_stream(tmp_path: Path) -> None:
    with Broker(tmp_path, start_limit_s=60) as broker:
        broker.create_topic("T", 1)
        options = {"namesrvAddr": broker.namesrv, "subscribe": "T", "numRetries": "0"}
        with Producer("p", broker.namesrv) as producer:
            producer.send(Message("T", b"1"))
        stream = Stream("", **options)
        assert [row["body"] for row in _drained(stream)] == [b"1"]
        reader = QueueBatchReader(read_options(options), spark_schema(["body"]))
        (partition,) = reader.partitions()
        broker.kill()
        with pytest.raises(ClientError, match="connect to"):
            list(reader.read(partition))
        broker.start()
        with Producer("p", broker.namesrv) as producer:
            producer.send(Message("T", b"2"))
        assert [row["body"] for row in _drained(stream)] == [b"1", b"2"]


def _drained(stream: Stream) -> list[dict[str, Any]]:
    stream.drain()
    return stream.rows


def test_tls(broker: Broker, keys: TlsFolder, tmp_path: Path) -> None:
    folder = keys.path
    own = {"tlsClientCertPath": str(folder / "client.pem"), "tlsClientKeyPath": str(folder / "client.key")}
    trusted = {"useTLS": "true", "tlsTrustCertPath": str(keys.authority_file), **own}
    assert wire(broker, subscribe="Flights", **trusted) == wire(broker, subscribe="Flights")
    stranger = TlsFolder(tmp_path)
    stranger.create(HOSTS, datetime.datetime.now(datetime.UTC), 30)
    with pytest.raises(NameServerUnreachable, match="certificate verify failed"):
        wire(broker, numRetries="0", **{**trusted, "tlsTrustCertPath": str(stranger.authority_file)})


def test_keys_are_not_shown() -> None:
    options = read_options({"namesrvAddr": "h:1", "accessKey": "who", "secretKey": "very secret"})
    reader = QueueStreamReader(options, spark_schema(["body"]))
    assert "very secret" not in f"{options} {options.wire!r} {reader.__dict__}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x", "namesrvAddr": "h:1"}, "'path' and 'namesrvAddr' exclude"),
        ({"path": "x", "subExpression": "A"}, "'subExpression' is for reads over the wire"),
        ({"namesrvAddr": "nowhere"}, "'namesrvAddr': 'nowhere' is not host:port"),
        ({"namesrvAddr": " ; "}, "'namesrvAddr' is empty"),
        ({"namesrvAddr": "h:1", "accessKey": "a"}, "belong together"),
        ({"namesrvAddr": "h:1", "expressionType": "XPATH", "subExpression": "x"}, "'XPATH' is not one of TAG, SQL92"),
        ({"namesrvAddr": "h:1", "expressionType": "SQL92"}, "'subExpression' is missing"),
        ({"namesrvAddr": "h:1", "tlsTrustCertPath": "x"}, "needs 'useTLS'"),
        ({"namesrvAddr": "h:1", "numRetries": "-1"}, "'numRetries': '-1'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(options)
