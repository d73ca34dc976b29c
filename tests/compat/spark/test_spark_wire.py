"""Spark's reader over the wire: from Apache RocketMQ's broker, and from a slave whose master is gone."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import BrokerRefused
from sprocket.client.message import Message
from sprocket.remoting.credentials import Credentials
from sprocket.sync import Producer
from tests.compat import wire
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster

pytestmark = pytest.mark.timeout(300)

_LIMIT_S = 60.0
_GET_MAX_OFFSET = 30
COLUMNS = "brokerName,topic,queueId,queueOffset,physicalOffset,msgId,tags,keys,body"


_ACCOUNTS = """
accounts:
  - accessKey: ReaderOfAll
    secretKey: secret-of-reader
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
  - accessKey: StrangerToAll
    secretKey: secret-of-stranger
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
"""


def send(
    cluster: Cluster, topic: str, count: int, credentials: Credentials | None = None
) -> list[tuple[int, int, str, bytes]]:
    """Queue, offset, message id and body of what was sent."""
    bodies = [b"%d " % index * (1 + index % 900) for index in range(count)]
    client = ClientSettings(namesrv=cluster.name_server_address, credentials=credentials)
    with Producer("spark-wire", client=client) as producer:
        results = list(producer.send_many(Message(topic, body, tags="A", keys="k") for body in bodies))
    return sorted(
        (result.queue.queue_id, result.queue_offset, result.message_id, body)
        for result, body in zip(results, bodies, strict=True)
    )


def rows(cluster: Cluster, path: str = "", **options: str) -> list[dict[str, object]]:
    place = {"path": path} if path else {"namesrvAddr": cluster.name_server_address}
    given = read_options({**place, "columns": COLUMNS, "startingOffsets": "earliest", **options})
    reader = QueueBatchReader(given, spark_schema(given.columns))

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in reader.partitions():
            yield from reader.read(partition)

    found = [row for batch in batches() for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["queueId"], row["queueOffset"]))


def told(found: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(row["queueId"], row["queueOffset"], row["msgId"], row["body"]) for row in found]


@pytest.mark.java
def test_apache_rocketmq_is_read_as_its_files_are(java: None, tmp_path: Path) -> None:
    with ApacheCluster(tmp_path) as cluster:
        sent = send(cluster, "FromApache", 1500)
        found = rows(cluster, subscribe="FromApache")
        assert told(found) == sent
        assert found == rows(cluster, f"broker-a={tmp_path}/broker-a/store", subscribe="FromApache")
        assert told(rows(cluster, subscribe="FromApache", startingOffsets='{"FromApache": {"0": -1}}')) == [
            each for each in sent if each[0] != 0
        ]


def test_a_slave_is_read_while_its_master_is_gone(tmp_path: Path) -> None:
    with SprocketCluster(tmp_path, slaves=1, properties={"slaveReadEnable": "true"}) as cluster:
        cluster.start_slaves()
        sent = send(cluster, "FromSlave", 600)
        (master,), (slave,) = cluster.brokers, cluster.slaves
        ends = {queue: 1 + max(offset for number, offset, _, _ in sent if number == queue) for queue, *_ in sent}

        def has_all() -> bool:
            answers = [
                wire.invoke(slave.address, _GET_MAX_OFFSET, {"topic": "FromSlave", "queueId": str(queue)})
                for queue in ends
            ]
            return [answer.fields.get("offset") for answer in answers] == [str(end) for end in ends.values()]

        deadline = time.monotonic() + _LIMIT_S
        while not has_all():
            assert time.monotonic() < deadline, "the slave does not follow"
            time.sleep(0.05)
        before = rows(cluster, subscribe="FromSlave")
        assert told(before) == sent
        master.kill()
        assert rows(cluster, subscribe="FromSlave") == before


def test_a_guarded_cluster_is_read_with_an_account(tmp_path: Path) -> None:
    home = tmp_path / "home" / "conf"
    home.mkdir(parents=True)
    (home / "plain_acl.yml").write_text(_ACCOUNTS)
    properties = {"aclEnable": "true", "rocketmqHome": str(home.parent)}
    with SprocketCluster(tmp_path / "servers", properties=properties) as cluster:
        sent = send(cluster, "Guarded", 200, Credentials("ReaderOfAll", "secret-of-reader"))
        account = {"accessKey": "ReaderOfAll", "secretKey": "secret-of-reader"}
        assert told(rows(cluster, subscribe="Guarded", **account)) == sent
        for refused in (
            {},
            {**account, "secretKey": "wrong"},
            {"accessKey": "StrangerToAll", "secretKey": "secret-of-stranger"},
        ):
            with pytest.raises(BrokerRefused) as caught:
                rows(cluster, subscribe="Guarded", **refused)
            assert "secret" not in str(caught.value)
