"""RocketMQ's protocol of controller mode between two stores, over real sockets, and the choice of the protocol."""

import asyncio
from pathlib import Path

import pytest

from ha.autoswitch.master_link import AutoSwitchMaster
from ha.autoswitch.messages import SlaveHandshake
from ha.protocol import report
from sprocket.common.errors import RestartNeeded, SprocketError
from tests.ha.autoswitch.group import Epochs, group
from tests.store.reading import read_queue
from tests.store.rig import message
from tests.waiting import until


async def test_a_slave_has_the_masters_log_and_epochs_and_says_so(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        store, epochs = it.slaves.open(), Epochs()
        it.send(50)
        follower = it.follower(store, epochs)
        await until(lambda: it.listener.replicas.offsets() == [it.master.wrote_offset])
        it.begin(2)
        it.send(50)
        await until(lambda: it.listener.replicas.offsets() == [it.master.wrote_offset])
        assert read_queue(store, "Orders", 0) == read_queue(it.master, "Orders", 0)
        assert epochs.history == it.epochs.history
        (connection,) = it.listener.connections
        assert isinstance(connection.link, AutoSwitchMaster)
        assert connection.identity == ("C", "a", 2)
        follower.stop()


async def test_a_slave_sees_what_the_master_confirmed(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        log = it.master.master_log()
        log.replicated(0, -1, is_enough=True, is_refusing=False)
        store = it.slaves.open()
        it.send(5)
        follower = it.follower(store, Epochs())
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        assert store.confirm_offset == it.master.confirm_offset < store.wrote_offset
        log.replicated(None, -1, is_enough=True, is_refusing=False)
        limit = it.master.wrote_offset
        log.replicated(limit, limit, is_enough=True, is_refusing=False)
        await until(lambda: store.confirm_offset == limit)  # with a heartbeat
        assert len(read_queue(store, "Orders", 0)) == 5
        follower.stop()
        store.replica().lead()
        assert store.confirm_offset == store.wrote_offset


async def test_a_learner_gets_the_log_and_does_not_count(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        store = it.slaves.open()
        it.send(5)
        follower = it.follower(store, Epochs(), is_learner=True)
        await until(lambda: it.listener.connections and it.listener.connections[0].link.acked_offset > 0)
        assert store.wrote_offset == it.master.wrote_offset
        assert it.listener.replicas.in_sync_slaves() == frozenset()
        follower.stop()


async def test_the_tail_of_an_old_master_is_truncated_at_the_next_start(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        store, epochs = it.slaves.open(), Epochs()
        it.send(20)
        follower = it.follower(store, epochs)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        follower.stop()
        common = store.wrote_offset
        store.replica().lead()
        store.append([message(body=b"nobody else has this")])
        it.begin(2)
        it.send(10, b"y")
        failures: list[SprocketError] = []
        follower = it.follower(store, epochs, failures)
        await until(lambda: failures)
        assert isinstance(failures[0], RestartNeeded)
        follower.stop()
        it.slaves.crash(store)
        store = it.slaves.open()
        assert store.wrote_offset == common
        follower = it.follower(store, epochs)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        assert read_queue(store, "Orders", 0) == read_queue(it.master, "Orders", 0)
        assert epochs.history == it.epochs.history
        follower.stop()


async def test_a_slave_that_connects_again_replaces_its_older_connection(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        host, _, port = it.address.partition(":")
        for _ in range(2):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(SlaveHandshake(2).encode())
            await until(lambda: any(one.link.identity is not None for one in it.listener.connections))
        await until(lambda: len(it.listener.connections) == 1)


@pytest.mark.parametrize("first", [report(0), report(7 << 32)])
async def test_a_plain_slave_is_told_about_the_mode(
    tmp_path: Path, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(tmp_path) as it:
        host, _, port = it.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(first)
        assert await reader.read() == b""
        assert "set enableControllerMode" in caplog.text
        assert it.listener.replicas.offsets() == []
