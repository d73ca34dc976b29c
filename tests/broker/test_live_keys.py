"""Keys that change while the broker runs: the parts that run honour them at once."""

from pathlib import Path

from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.broker.fake_slave import fake_slave
from tests.broker.insides import server_of
from tests.broker.replication.test_replication import master
from tests.broker.rig import TestClient, create, running_broker, stored
from tests.waiting import until


async def change(client: TestClient, **values: object) -> None:
    body = "".join(f"{key}={value}\n" for key, value in values.items())
    await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=body.encode())


async def test_the_largest_message_and_its_seal(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        await client.send(b"x" * 2_000)
        await change(client, maxMessageSize=1_000, enabledAppendPropCRC="false")
        await client.send(b"x" * 1_000)
        try:
            await client.send(b"x" * 2_000)
        except AssertionError as refused:
            assert str(int(ResponseCode.MESSAGE_ILLEGAL)) in str(refused)
        else:
            raise AssertionError("a message over the limit was taken")
        await change(client, maxMessageSize=400_000)
        await client.send(b"x" * 300_000)
        sealed, unsealed = (bytes(stored(broker, "Orders", 0, offset).properties) for offset in (0, 1))
        assert (b"__CRC32#" in sealed, b"__CRC32#" in unsealed) == (True, False)


async def test_how_often_the_log_is_flushed(tmp_path: Path) -> None:
    rare = {"flush_interval_commit_log": 3_600_000, "flush_commit_log_least_pages": 1_000}
    async with running_broker(tmp_path, store=rare) as (broker, client):
        await client.send()
        assert broker.store.flushed_offset < broker.store.wrote_offset
        await change(client, flushIntervalCommitLog=10, flushCommitLogLeastPages=0)
        await until(lambda: broker.store.flushed_offset == broker.store.wrote_offset)


async def test_how_long_a_send_waits_for_slaves_also_one_that_waits_already(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout=3_600_000) as it, fake_slave(it.port):
        await it.in_sync(1)
        await it.send()
        await it.unanswered(None)
        await change(it.client, slaveTimeout=50)
        await it.answered(ResponseCode.FLUSH_SLAVE_TIMEOUT)


async def test_how_many_replicas_a_send_takes(tmp_path: Path) -> None:
    async with master(tmp_path, in_sync_replicas=3) as it, fake_slave(it.port) as slave:
        slave.is_eager = True
        await it.in_sync(1)
        await it.send()
        await it.answered(ResponseCode.SLAVE_NOT_AVAILABLE)
        await change(it.client, inSyncReplicas=2)
        await it.send()
        await it.answered(ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SUCCESS)
        await change(it.client, minInSyncReplicas=3)
        await it.send()
        refused = it.sends[-1].result()
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")


async def test_how_the_log_goes_to_slaves_also_to_one_that_is_connected(tmp_path: Path) -> None:
    async with master(tmp_path) as it, fake_slave(it.port):
        await it.in_sync(1)
        (connection,) = it.broker.replication.listener.connections
        await change(
            it.client,
            haTransferBatchSize=4096,
            haFlowControlEnable="true",
            maxHaTransferByteInSecond=1024,
            haHousekeepingInterval=7_000,
        )
        rules = connection.link._rules
        assert (rules.batch_bytes, rules.bytes_per_s, rules.housekeeping_s) == (4096, 1024, 7.0)
        assert connection.link.is_expired(it.broker.clock.monotonic() + 8)


async def test_how_long_a_connection_may_be_silent(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await change(client, serverChannelMaxIdleTimeSeconds=3)
        assert server_of(broker).settings.server_channel_max_idle_time_seconds == 3
