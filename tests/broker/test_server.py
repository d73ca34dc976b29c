"""The life of a whole broker: start, stop, restart, crash, failure."""

import socket
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.common.clock import SystemClock
from sprocket.common.errors import ConfigError, DiskFailed, SprocketError, StoreError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from store.disk.disk import RealDisk, RealFile
from tests.broker.insides import periodic_of, work_now
from tests.broker.rig import GROUP, TOPIC, TestClient, broker_config, running_broker, store_config, stored
from tests.compat.ports import free_broker_port
from tests.waiting import until


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"one")
        await client.heartbeat("c1", TOPIC)
        header = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1)
        await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert (tmp_path / "store" / "abort").exists()
    assert not (tmp_path / "store" / "abort").exists()
    async with running_broker(tmp_path) as (broker, client):
        assert TOPIC in broker.topics
        assert GROUP in broker.groups
        assert broker.offsets.query(GROUP, TOPIC, 0) == 1
        response = await client.pull()
        assert response.code == ResponseCode.SUCCESS
        assert b"one" in response.body


async def test_delayed_message_survives_a_restart(tmp_path: Path) -> None:
    levels = {"message_delay_level": "200d"}
    async with running_broker(tmp_path, store=levels) as (broker, client):
        await client.send(b"later", DELAY="1")
        assert broker.store.max_offset(TOPIC, 0) == 0
    clock = ShiftedClock(201 * 86_400_000)
    async with running_broker(tmp_path, store=levels, clock=clock) as (broker, _):
        await until(lambda: broker.store.max_offset(TOPIC, 0) == 1)
        assert bytes(stored(broker, TOPIC, 0, 0).body) == b"later"
    async with running_broker(tmp_path, store=levels, clock=clock) as (broker, client):
        await client.send(b"after", DELAY="1")
        assert broker.schedule.offsets.delivered[1] == 1, "what was delivered is not delivered again"


class ShiftedClock(SystemClock):
    """The system's clocks, with the wall clock ahead by `shift_ms`."""

    def __init__(self, shift_ms: int) -> None:
        self._shift_ms = shift_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._shift_ms


async def test_delayed_message_of_a_running_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"message_delay_level": "1s"}) as (broker, client):
        await client.send(b"later", DELAY="1")
        await until(lambda: broker.store.max_offset(TOPIC, 0) == 1)
        waited_ms = broker.store.store_time(TOPIC, 0, 0) - broker.store.store_time("SCHEDULE_TOPIC_XXXX", 0, 0)
        assert waited_ms >= 1_000


async def test_consumer_offsets_are_saved_while_it_runs(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flush_consumer_offset_interval=10) as (broker, _):
        broker.offsets.commit(GROUP, TOPIC, 0, 7)
        file = tmp_path / "store" / "config" / "consumerOffset.json"
        await until(file.exists)
        await until(lambda: b"{0:7" in file.read_bytes())


async def test_offsets_past_the_log_are_moved_back_at_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        broker.offsets.commit(GROUP, TOPIC, 0, 99)
    async with running_broker(tmp_path) as (broker, _):
        assert broker.offsets.query(GROUP, TOPIC, 0) == 1


async def test_silent_clients_are_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, channel_expired_timeout=1) as (broker, client):
        await client.heartbeat("c1", TOPIC)
        await until(lambda: broker.clock.monotonic() > _heard_at(broker) + 0.01)
        await work_now("client_scan", periodic_of(broker))
        assert broker.consumers.group(GROUP) is None


def _heard_at(broker: Broker) -> float:
    group = broker.consumers.group(GROUP)
    assert group is not None
    return next(iter(group.members.values())).heard_at


async def test_store_that_is_in_use_stops_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        second = Broker(broker_config(), store_config(tmp_path))
        with pytest.raises(StoreError, match="in use"):
            await second.start()
        await second.stop()


async def test_port_that_is_taken_stops_the_start_and_frees_the_store(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as (first, _):
        second = Broker(broker_config(listen_port=first.port), store_config(tmp_path / "b"))
        with pytest.raises(ConfigError, match="in use"):
            await second.start()
        async with running_broker(tmp_path / "b"):
            pass


async def test_address_that_cannot_be_resolved_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerIP1"):
        await Broker(broker_config(broker_ip1="no such host"), store_config(tmp_path)).start()


async def test_name_is_resolved_for_the_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path, broker_ip1="localhost") as (broker, client):
        assert broker.address == f"localhost:{broker.port}"
        answer = await client.send()
        assert answer.msg_id.startswith("7F000001" if len(answer.msg_id) == 32 else "0" * 31 + "1")


class FailingDisk(RealDisk):
    """The system's disk, whose files fail to sync once `is_broken` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> RealFile:
        disk = self

        class File(RealFile):
            __slots__ = ()

            def sync(self) -> None:
                if disk.is_broken:
                    raise DiskFailed(f"sync {self.path}: Input/output error")
                super().sync()

        file = super().create(path, size_bytes, preallocate=preallocate)
        file.__class__ = File
        return file


async def test_failed_disk_is_fatal_and_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    from store.config.store_config import FlushDiskType

    disk, fatal = FailingDisk(), list[SprocketError]()
    config = store_config(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    broker = Broker(broker_config(), config, disk=disk, on_fatal=fatal.append)
    await broker.start()
    client = TestClient(broker.address)
    await client.send()
    disk.is_broken = True
    with pytest.raises(AssertionError, match="disk"):
        await client.send()
    assert [type(error) for error in fatal] == [DiskFailed]
    with pytest.raises(AssertionError):
        await client.send()
    await client.close()
    await broker.stop()
    assert len(fatal) == 1
    assert (tmp_path / "store" / "abort").exists(), "the next start must not trust the files"


async def test_slaves_of_rocketmq_are_served_two_ports_below(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ's VIP port; without it the broker starts all the same."""
    port = free_broker_port()
    async with running_broker(tmp_path / "one", listen_port=port, ha_listen_port=port + 1) as (broker, _):
        client = TestClient(f"127.0.0.1:{port - 2}")
        response = await client.ask_well(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert b"TBW102" in response.body
        await client.close()
        assert broker.port == port
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", port - 2))
        taken.listen()
        async with running_broker(tmp_path / "two", listen_port=port, ha_listen_port=port + 1) as (broker, client):
            await client.ask_well(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert f"event=vip_port_not_open port={port - 2}" in caplog.text
