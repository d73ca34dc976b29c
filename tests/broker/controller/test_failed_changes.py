"""A change of the role that fails leaves nothing running, and is told to the owner of the process."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.remoting.codes import RequestCode
from tests.broker.controller.rig import Group, Replica, group
from tests.broker.rig import TOPIC, bodies_in_order, create
from tests.store.rig import FaultyDisk


async def _led(root: Path, **changes: Any) -> tuple[Group, Replica]:
    it = Group()
    replica = await it.start(Replica(root, 1, **changes))
    await it.elect(1)
    return it, replica


async def _has_ended(replica: Replica, ports: list[int], tasks: set[Any]) -> None:
    for port in ports:
        with socket.socket() as one:
            assert one.connect_ex(("127.0.0.1", port)), port
    await replica.broker.stop()  # as the process does
    for _ in range(5):
        await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() if not task.done()} <= tasks


async def _starts_again(root: Path, bodies: list[bytes]) -> None:
    _, replica = await _led(root)
    assert bodies_in_order(replica.broker, TOPIC) == bodies
    await replica.broker.stop()


def _ports(broker: Broker) -> list[int]:
    return [broker.port, broker.config.broker.ha_listen_port]


@pytest.mark.parametrize("to", ["slave", "master"])
@pytest.mark.parametrize("table", ["topics", "groups"])
async def test_a_table_that_cannot_be_written_ends_the_broker(
    tmp_path: Path, table: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = asyncio.all_tasks()
    it, replica = await _led(tmp_path)
    client = replica.client
    await client.send(b"one")
    if to == "master":
        await replica.border.switch.rest()
    ports = _ports(replica.broker)

    def fails(content: bytes) -> None:
        raise StoreError("planted")

    saved = getattr(replica.broker, table)
    saved.changes += 1
    monkeypatch.setattr(saved, "_write", fails)
    with pytest.raises(StoreError, match="planted"):
        await (replica.border.switch.rest() if to == "slave" else it.elect(1))
    assert [str(one) for one in replica.fatal] == ["planted"]
    await client.close()
    await _has_ended(replica, ports, before)
    monkeypatch.undo()
    await _starts_again(tmp_path, [b"one"])


async def test_an_epoch_that_cannot_be_written_ends_the_broker_before_it_appends(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    it, replica = await _led(tmp_path)
    client = replica.client
    await client.send(b"one")
    await replica.border.switch.rest()
    ports, end = _ports(replica.broker), replica.broker.store.wrote_offset
    replica.epochs.fails = True
    with pytest.raises(StoreError, match="planted"):
        await it.elect(1)
    assert len(replica.fatal) == 1 and replica.broker.store.wrote_offset == end
    await client.close()
    await _has_ended(replica, ports, before)
    await _starts_again(tmp_path, [b"one"])


async def test_a_disk_that_fails_in_a_change_acknowledges_nothing_and_ends_the_broker(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    disk = FaultyDisk()
    # Nothing is flushed before the change.
    store = {"flush_interval_commit_log": 600_000, "flush_commit_log_thorough_interval": 600_000}
    _, replica = await _led(tmp_path, disk=disk, store=store)
    client = replica.client
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.send(b"one")
    ports = _ports(replica.broker)
    disk.sync_fails = True
    with pytest.raises(DiskFailed):
        await replica.border.switch.rest()
    assert isinstance(replica.fatal[0], DiskFailed)
    await client.close()
    await _has_ended(replica, ports, before)


async def test_a_stop_waits_for_the_change_and_a_change_after_it_is_refused(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        client = it[1].client
        await client.send(b"one")
        await client.close()
        resting = asyncio.create_task(it[1].border.switch.rest())
        await asyncio.sleep(0.001)
        await it[1].broker.stop()
        await resting
        with pytest.raises(StoreError, match="does not run"):
            await it.elect(1)
    await _starts_again(tmp_path, [b"one"])


async def test_who_asked_may_be_cancelled_but_not_the_change(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        resting = asyncio.create_task(it[1].border.switch.rest())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        resting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resting
        await it.elect(1)
        assert [one.number for one in it[1].epochs.begun] == [1, 2]
        leading = asyncio.create_task(it.elect(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leading.cancel()
        await it[1].border.switch.rest()
        assert it[1].broker.role.is_slave
        await it.elect(1)
        client = it[1].client
        await client.send(b"one")
        await client.close()
