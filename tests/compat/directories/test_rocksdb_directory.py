"""The directory of a stopped Apache broker with RocksDB is taken over as docs/migration.md says."""

import shutil
from pathlib import Path

import pytest

from sprocket import AdminClient, ConsumeFrom, Message, Producer, SimpleConsumer
from sprocket.client.consumer import Consumer
from tests.compat import maven, wire
from tests.compat.java_client import AdminShell
from tests.compat.replication.replicas import CLUSTER_NAME, Replicas

_TABLES = {"topics", "subscriptionGroups", "consumerOffsets"}


def moved(store: Path, target: Path) -> None:
    """What the page tells an operator to copy."""
    shutil.copytree(store / "commitlog", target / "commitlog")
    shutil.copytree(store / "config", target / "config", ignore=shutil.ignore_patterns(*_TABLES))


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_a_directory_with_rocksdb_is_taken_over(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache RocketMQ: {missing}")
    with Replicas(tmp_path) as replicas:
        old = replicas.add("apache", "broker-a", 0, storeType="defaultRocksDB")
        old.start()
        replicas.await_registered(old)
        wire.create_topic(old.address, "Moved", 3)
        async with Producer("p", replicas.name_servers) as producer:
            sent = [await producer.send(Message("Moved", b"%d" % number)) for number in range(30)]
        async with Consumer("readers", "Moved", replicas.name_servers, consume_from=ConsumeFrom.FIRST) as consumer:
            got = 0
            async for message in consumer:
                await message.ack()
                got += 1
                if got == 30:
                    break
        shell = AdminShell(tmp_path)
        try:
            printed = shell.run("rocksDBConfigToJson", "-n", replicas.name_servers, "-c", CLUSTER_NAME)
        finally:
            shell.close()
        assert "broker export done" in printed
        old.stop()
        store = old.directory / "store"
        assert (store / "config" / "topics").is_dir(), "the tables are in RocksDB"
        home = tmp_path / "new"
        moved(store, home / "store")
        new = replicas.again("sprocket", "broker-a", 0, home, "ASYNC_MASTER")
        new.start()
        replicas.await_registered(new)
        async with AdminClient(replicas.name_servers) as admin:
            offsets = (await admin.topic_stats("Moved")).offset_table
            assert sum(extent.max_offset for extent in offsets.values()) == 30
            progress = (await admin.consume_stats("readers", "Moved")).offset_table
            assert {(queue.queue_id, at.consumer_offset) for queue, at in progress.items()} == {
                (queue.queue_id, at.broker_offset) for queue, at in progress.items()
            }
        popper = SimpleConsumer("again", "Moved", replicas.name_servers, consume_from=ConsumeFrom.FIRST)
        async with popper, Producer("p", replicas.name_servers) as producer:
            after = await producer.send(Message("Moved", b"after"))
            bodies: set[bytes] = set()
            while len(bodies) < 31:
                bodies |= {message.body for message in await popper.receive(32, wait_s=10)}
            assert after.queue_offset >= max(result.queue_offset for result in sent)
