"""The same work at Apache RocketMQ's servers and at ours: the same metrics, with the same labels and types."""

import asyncio
from pathlib import Path

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from tests.compat import ports
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster
from tests.compat.controllers.controllers import ControllerCluster
from tests.compat.replication.replicas import Kind, until
from tests.metrics.prometheus_page import Family, scrape

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

_TOPIC, _GROUP, _POP_GROUP = "Metrics", "GMetrics", "GMetricsPop"
# Of the exporter, not of RocketMQ.
_OF_THE_EXPORTER = {"target_info", "otel_scope_info"}
_EXPORTER_LABELS = {"otel_scope_name", "otel_scope_version"}


async def work(cluster: Cluster) -> None:
    """What clients do, of each kind."""
    namesrv, broker = cluster.name_server_address, cluster.brokers[0].address
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(broker, TopicConfig(_TOPIC, 2, 2))
        for group in (_GROUP, _POP_GROUP):
            config = SubscriptionGroupConfig(group, retry_max_times=0)
            await admin.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(config))
    async with Producer("PMetrics", namesrv) as producer:
        for number in range(20):
            await producer.send(Message(_TOPIC, b"body %d" % number, tags="TagA"))
        await producer.send(Message(_TOPIC, b"ordered"), sharding_key="one")
        await producer.send(Message(_TOPIC, b"delayed", delay_level=1))
        await producer.send(Message(_TOPIC, b"timed", delay=3.0))
    async with TransactionProducer("PMetricsT", namesrv, checker=_commit) as transactions:
        await transactions.send_in_transaction(Message(_TOPIC, b"yes"), _yes)
        await transactions.send_in_transaction(Message(_TOPIC, b"no"), _no)
        await transactions.send_in_transaction(Message(_TOPIC, b"open"), _open)


async def _commit(message: object) -> TransactionState:
    return TransactionState.UNKNOWN


async def _yes(message: Message, transaction_id: str) -> TransactionState:
    return TransactionState.COMMIT


async def _no(message: Message, transaction_id: str) -> TransactionState:
    return TransactionState.ROLLBACK


async def _open(message: Message, transaction_id: str) -> TransactionState:
    return TransactionState.UNKNOWN


async def seen(cluster: Cluster, port: int) -> dict[str, Family]:
    """Work, and return the metrics while the clients are still connected."""
    await work(cluster)
    namesrv = cluster.name_server_address
    async with (
        Producer("PMetrics", namesrv) as producer,
        Consumer(_GROUP, [_TOPIC], namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
        SimpleConsumer(_POP_GROUP, {_TOPIC: "*"}, namesrv) as simple,
    ):
        await producer.send(Message(_TOPIC, b"last"))
        for _ in range(20):
            await consumer.ack(await anext(consumer))
        await consumer.nack(await anext(consumer))  # its group has no retries: a dead letter
        for message in await simple.receive(8, invisible=10.0):
            await simple.ack(message)
        await asyncio.sleep(5)
        return await asyncio.to_thread(scrape, port)


def shown(families: dict[str, Family]) -> dict[str, tuple[str, set[frozenset[str]]]]:
    return {
        name: (family.kind, {labels - _EXPORTER_LABELS for labels in family.label_names})
        for name, family in families.items()
        if name not in _OF_THE_EXPORTER
    }


def test_the_same_metrics(java: None, tmp_path: Path) -> None:
    found = {}
    for kind in (ApacheCluster, SprocketCluster):
        port = ports.free_port()
        properties = {
            "metricsExporterType": "PROM", "metricsPromExporterPort": str(port), "metricsPromExporterHost": "127.0.0.1",
            "metricsLabel": "instance_id:one", "timerWheelEnable": "true",
        }  # fmt: skip
        with kind(tmp_path / kind.__name__, properties=properties) as cluster:
            found[kind] = shown(asyncio.run(seen(cluster, port)))
    theirs, ours = found[ApacheCluster], found[SprocketCluster]
    assert {name for name in theirs if name not in ours} == set()
    assert {name: ours[name] for name in theirs} == theirs
    assert all(name.startswith("sprocket_") for name in ours.keys() - theirs.keys()), ours.keys() - theirs.keys()


def controller_page(directory: Path, kind: Kind) -> dict[str, Family]:
    """The metrics of one controller with one broker of Apache."""
    port = ports.free_port()
    properties = {
        "metricsExporterType": "PROM", "metricsPromExporterPort": str(port), "metricsPromExporterHost": "127.0.0.1",
    }  # fmt: skip
    with ControllerCluster(directory, kind, count=1, properties=properties) as cluster:
        cluster.start_controllers()
        broker = cluster.add_broker(0)
        broker.start()
        until(lambda: cluster.master([broker]), "the broker is the master")
        until(lambda: "active_broker_num" in scrape(port), "the broker's heartbeat is heard")
        return scrape(port)


def test_the_same_metrics_of_a_controller(java: None, tmp_path: Path) -> None:
    theirs = shown(controller_page(tmp_path / "apache", "apache"))
    ours = shown(controller_page(tmp_path / "sprocket", "sprocket"))
    assert set(theirs) - set(ours) == set()
    assert {name: ours[name] for name in theirs} == theirs
