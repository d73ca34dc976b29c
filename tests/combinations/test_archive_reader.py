"""A broker that serves an archive (readOnlyFrom) behind every kind of guard, after the broker that wrote it is gone.

It is read by our clients over both protocols, and by Spark over the wire.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.archive import archive_service
from broker.message_id import host_bytes, offset_message_id
from broker.server import Broker
from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from sprocket import ClientSettings, ConsumeFrom, Message, MessageQueue, Producer, SimpleConsumer
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.common.errors import SprocketError
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.combinations.archive_site import READER, body, drained, keys
from tests.combinations.profiles import GUARDS, OPERATOR, Guard
from tests.combinations.site import Site, site_at
from tests.combinations.test_matrix import proxy_at
from tests.combinations.traffic import TOPIC, Traffic, is_refused
from tests.proxy.rig import handle_of
from tests.proxy.test_access import signed

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def follows_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_service, "_FOLLOW_S", 0.02)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
async def test_whoever_may_reads_an_archive_through_its_reader(tmp_path: Path, guard: Guard) -> None:
    async with site_at(tmp_path, "2m-noslave", guard, keys(tmp_path)) as site, asyncio.timeout(150):
        reader, expected = await drained(site, tmp_path)
        for stranger in site.written.strangers:
            assert await is_refused(stranger)
            assert await _popped(stranger, "strangers", 1, wait_s=2.0) == set()
        client = site.written.client
        traffic = Traffic(client)
        traffic.acknowledged = {text.encode() for text in expected}
        await traffic.consume("readers")
        assert await _popped(client, "poppers", len(expected)) == traffic.acknowledged
        await _found(traffic, expected, reader.port)
        async with Producer("writers", client=client) as producer:
            with pytest.raises(SprocketError, match="serves an archive"):
                await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, READER, 0))
        assert await asyncio.to_thread(_spark, site) == [text.encode() for text in expected]
        await _proxy_serves(site, reader, traffic)


async def _popped(client: ClientSettings, group: str, count: int, wait_s: float = 30.0) -> set[bytes]:
    """Pop until there are `count` messages; whoever is refused has none after `wait_s`."""
    found: set[bytes] = set()
    with suppress(TimeoutError, SprocketError):
        async with (
            asyncio.timeout(wait_s),
            SimpleConsumer(group, [TOPIC], client=client, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            while len(found) < count:
                for message in await consumer.receive(16, invisible=30, wait_s=1.0):
                    found.add(bytes(message.body))
                    await consumer.ack(message)
    return found


async def _found(traffic: Traffic, expected: list[str], port: int) -> None:
    """Find one message by its key, its id and its place in the log."""
    async with traffic.admin() as admin:
        lookup = MessageLookup(admin)
        (by_key,) = await lookup.by_key(TOPIC, "k6")
        assert by_key.body.decode() == body(6) == expected[7]
        # The offset id in a message has the address of the broker that wrote it; this one has the reader's.
        reader_id = offset_message_id(host_bytes("127.0.0.1", port), by_key.physical_offset)
        for message_id in (by_key.message_id, reader_id):
            found = await lookup.by_id(TOPIC, message_id)
            assert found is not None
            assert found.body == by_key.body


def _spark(site: Site) -> list[bytes]:
    client = site.written.client
    given = {"namesrvAddr": site.written.cluster.namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
    if client.credentials is not None:
        given |= {"accessKey": client.credentials.access_key, "secretKey": client.credentials.secret_key}
    folder = site.written.cluster.tls
    if folder is not None:
        given |= {"useTLS": "true", "tlsTrustCertPath": str(folder.authority_file)}
        given |= {"tlsClientCertPath": str(folder.certificate_file("client"))}
        given |= {"tlsClientKeyPath": str(folder.key_file("client"))}
    options = read_options({**given, "columns": "queueOffset,body"})
    scan = QueueBatchReader(options, spark_schema(options.columns))
    rows = [row for part in scan.partitions() for batch in scan.read(part) for row in batch.to_pylist()]
    return [row["body"] for row in sorted(rows, key=lambda row: row["queueOffset"])]


async def _proxy_serves(site: Site, reader: Broker, traffic: Traffic) -> None:
    """All messages come through a proxy, by either protocol, and a send is refused."""
    async with proxy_at(site.written, reader.config.store.store_path_root_dir) as (proxy, client):
        if site.written.guard.proxy.get("authenticationEnabled"):
            unsigned = await client.receive(TOPIC, "grpc-readers", wait_s=1)
            assert [part.status.code for part in unsigned if part.HasField("status")] == [wire.UNAUTHORIZED]
            signed(client, OPERATOR.access_key, OPERATOR.secret_key)
        missing = set(traffic.acknowledged)
        while missing:
            received = await client.messages(TOPIC, "grpc-readers", 1)
            missing -= {bytes(one.body) for one in received}
            acked = await client.ack(TOPIC, "grpc-readers", *map(handle_of, received))
            assert acked.status.code == wire.OK, acked.status.message
        assert (await client.send(TOPIC, "x")).status.code == wire.FORBIDDEN
        remoting = Traffic(replace(site.written.client, namesrv=f"127.0.0.1:{proxy.remoting.listeners[0].port}"))
        remoting.acknowledged = traffic.acknowledged
        await remoting.consume("remoting-readers")
