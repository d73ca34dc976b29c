"""A broker whose role changes while it runs."""

import asyncio
import contextlib
import gc
import socket
import threading
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerRole
from broker.controller.tenure import Tenure
from broker.term import Term
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from store.message_store import MessageStore
from tests.broker.controller.load import change_under_load
from tests.broker.controller.rig import group
from tests.broker.insides import periodic_of, server_of
from tests.broker.pop.rig import popped
from tests.broker.rig import TOPIC, bodies_in_order, create
from tests.waiting import until


async def test_a_broker_under_controllers_starts_as_a_replica_without_a_master(tmp_path: Path) -> None:
    async with group(tmp_path, 1, broker_role=BrokerRole.SYNC_MASTER) as it:
        broker, client = it[1].broker, it[1].client
        assert broker.role.is_slave and broker.config.broker.broker_role is BrokerRole.SLAVE
        with pytest.raises(AssertionError):
            await client.send()
        await it.elect(1)
        assert not broker.role.is_slave
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.close()


async def test_what_one_master_acknowledged_the_next_one_serves(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        first, second = it[1].client, it[2].client
        await it.elect(1)
        await first.send(b"one")
        await it.in_step()
        await it.elect(2)
        # The connection is still there, the client need not connect again.
        await second.send(b"two")
        with pytest.raises(AssertionError):
            await first.send(b"three")
        await it.in_step()
        for broker_id in (1, 2):
            assert bodies_in_order(it[broker_id].broker, TOPIC) == [b"one", b"two"]
        assert [epoch.number for epoch in it[1].epochs.begun] == [1]
        assert [epoch.number for epoch in it[2].epochs.begun] == [2]
        for client in (first, second):
            await client.close()


async def test_acknowledged_messages_survive_changes_of_roles_under_load(tmp_path: Path) -> None:
    async with group(tmp_path, store={"in_sync_replicas": 2}) as it:
        await change_under_load(it, 10, seed=1)


async def test_a_tail_that_nobody_else_has_is_truncated_within_the_process(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        await it.elect(1)
        first, second = it[1].client, it[2].client
        await first.send(b"shared")
        await it.in_step()
        await it[2].border.switch.rest()  # it follows nobody
        await first.send(b"lost")
        await it.elect(2)
        await second.send(b"kept, and longer")
        await it.in_step()
        for broker_id in (1, 2):
            assert bodies_in_order(it[broker_id].broker, TOPIC) == [b"shared", b"kept, and longer"]
        # The tail is kept aside, and the slave goes on.
        assert list((tmp_path / "replica-1" / "store" / "cut").iterdir())
        await second.send(b"more")
        await it.in_step()
        assert bodies_in_order(it[1].broker, TOPIC) == [b"shared", b"kept, and longer", b"more"]
        for client in (first, second):
            await client.close()


async def test_nothing_leaks_with_changes(tmp_path: Path) -> None:
    async with group(tmp_path) as it:
        clients = [it[1].client, it[2].client]
        await it.elect(1)
        await clients[0].send()

        async def settled() -> tuple[int, int, int, list[int]]:
            """Tasks, threads, descriptors, and listeners of what lasts, at rest as slave and master."""
            await it.elect(2)
            await it.elect(1)
            await it.in_step()
            await until(lambda: it[1].broker.replication.replicas.in_sync_slaves())
            await clients[0].send()
            await it.in_step()
            gc.collect()
            listeners = [
                count
                for one in it.replicas.values()
                for count in (
                    len(one.broker.config.on_update),
                    len(one.broker.consumers.on_subscribed),
                    len(server_of(one.broker).on_close),
                    len(one.broker.store.on_arrival),
                    sum(map(len, one.broker.store.on_arrival_of.values())),
                    len(periodic_of(one.broker)),
                )
            ]
            # Of earlier terms nothing is left that anything could call.
            listeners.append(sum(isinstance(one, Term | MessageStore | RemotingClient) for one in gc.get_objects()))
            return (
                len(asyncio.all_tasks()),
                # The loop's executor starts up to as many threads as it ever needed at once, and keeps them.
                sum(not one.name.startswith("asyncio_") for one in threading.enumerate()),
                _descriptors(),
                listeners,
            )

        before = await settled()
        for _ in range(5):
            await settled()
        after = await settled()
        assert after == before
        for client in clients:
            await client.close()


def _descriptors() -> int:
    """Return the number of open descriptors, without those of the index, which is written whenever there is time."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            count += "/index/" not in str(entry.readlink())
    return count


async def test_name_servers_know_the_role_and_no_route_is_lost(tmp_path: Path) -> None:
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kvConfig.json")
    name_server = NameServer(config)
    await name_server.start()

    def members() -> dict[int, str]:
        known = name_server.table.brokers.get("broker-a")
        return {} if known is None else dict(known.broker_addrs)

    seen: list[int] = []
    try:
        async with group(tmp_path, namesrv_addr=f"127.0.0.1:{name_server.port}") as it:
            addresses = {broker_id: replica.broker.address for broker_id, replica in it.replicas.items()}
            await asyncio.sleep(0.1)
            assert members() == {}, "a replica without an id is not registered"
            await it.elect(1)
            await until(lambda: members() == {0: addresses[1], 2: addresses[2]})
            client = it[1].client
            await client.send()
            await it.in_step()

            async def watch() -> None:
                while True:
                    seen.append(len(members()))
                    await asyncio.sleep(0.001)

            watching = asyncio.create_task(watch())
            await it.elect(2)
            await until(lambda: members() == {0: addresses[2], 1: addresses[1]})
            await it[2].border.switch.rest()
            await until(lambda: members() == {2: addresses[2], 1: addresses[1]})
            watching.cancel()
            await client.close()
            # A master that does not know yet that it was replaced leaves the route alone.
            await it.elect(1)
            await until(lambda: members() == {0: addresses[1], 2: addresses[2]})
            it[1].border.lease.given_up()
            await it.elect(2, followers=False)
            await until(lambda: members() == {0: addresses[2]})
            it[1].broker.registration.topics_changed([])
            await asyncio.sleep(0.3)
            assert members() == {0: addresses[2]}
        assert min(seen) >= 1
        assert members() == {}
    finally:
        await name_server.stop()


async def test_requests_in_a_change_wait_and_are_answered(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it:
        client = it[1].client
        await it.elect(1)
        await client.send(b"first")
        answers = []
        for _ in range(5):
            await it[1].border.switch.rest()
            leading = asyncio.create_task(it.elect(1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asked = [asyncio.create_task(client.pull()) for _ in range(20)]
            newcomer = it[1].client
            asked.append(asyncio.create_task(newcomer.pull()))
            await leading
            answers += [(await one).code for one in asked]
            await newcomer.close()
        assert answers == [ResponseCode.SUCCESS] * 105
        await client.close()


async def test_the_port_for_slaves_stays_bound(tmp_path: Path) -> None:
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        port = it[1].broker.config.broker.ha_listen_port
        stolen: list[bool] = []

        async def steal() -> None:
            while True:
                with socket.socket() as other:
                    stolen.append(not other.connect_ex(("127.0.0.1", port)))
                await asyncio.sleep(0)

        stealing = asyncio.create_task(steal())
        for _ in range(3):
            await it[1].border.switch.rest()
            await it.elect(1)
        stealing.cancel()
        assert all(stolen) and len(stolen) > 5
        assert it[1].broker.config.broker.ha_listen_port == port
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", port)), "released by the stop"


async def test_a_replaced_master_appends_nothing_more(tmp_path: Path) -> None:
    """Not even the pops that it has in memory, which a stop writes to the log."""
    async with group(tmp_path, 1, enable_pop_buffer_merge=True) as it:
        await it.elect(1)
        client = it[1].client
        for number in range(5):
            await client.send(b"%d" % number)
        await client.heartbeat("C1", TOPIC)
        assert len(await popped(client)) == 5
        end = it[1].broker.store.wrote_offset
        assert len(it[1].broker.pop.buffer)
        await it[1].border.switch.rest()
        assert it[1].broker.store.wrote_offset == end
        # A master whose epoch is followed by its own next one goes on.
        await it.elect(1)
        await client.send(b"next")
        await client.close()


async def test_a_master_that_does_not_answer_delays_no_election(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with group(tmp_path, 1) as it:
            switch = it[1].border.switch
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            await switch.follow(Tenure(1, 9, address, frozenset({1, 9}), 1))
            await asyncio.sleep(0.2)  # it asks by now, for up to 3 s
            it.epoch = 1
            began = asyncio.get_running_loop().time()
            await it.elect(1)
            assert asyncio.get_running_loop().time() - began < 2.0


async def test_offsets_stay_in_memory_and_are_in_the_file_after_the_stop(tmp_path: Path) -> None:
    file = tmp_path / "replica-1" / "store" / "config" / "consumerOffset.json"
    async with group(tmp_path, 1) as it:
        await it.elect(1)
        broker = it[1].broker
        await it[1].client.send(b"one")
        before = broker.offsets
        before.commit("C1", TOPIC, 0, 1)
        await it[1].border.switch.rest()
        assert broker.offsets is not before
        assert (before.query("C1", TOPIC, 0), broker.offsets.query("C1", TOPIC, 0)) == (-1, 1)
        assert not file.exists()
        assert broker.offsets.is_unsaved
        # As after a load: commits beyond the end of the log are reduced to it.
        broker.offsets.commit("C2", TOPIC, 0, 7)
        await it.elect(1)
        assert (broker.offsets.query("C1", TOPIC, 0), broker.offsets.query("C2", TOPIC, 0)) == (1, 1)
        await it[1].client.close()
    assert b'"C1"' in file.read_bytes()
