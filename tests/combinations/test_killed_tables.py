"""SIGKILL of masters whose members compact a topic: the table that is read after each election has every last value."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

import sprocket
from sprocket import SprocketError
from sprocket.client.typed.table import Table
from sprocket_cli.processes.local_cluster import LocalCluster, Member, Started
from tests.combinations.profiles import CONTROLLER, OPEN, Written, write
from tests.combinations.traffic import Traffic

pytestmark = pytest.mark.timeout(240)
TOPIC = "Prices"
_PUTS = 250
_KEYS = {"mappedFileSizeCommitLog": "65536", "compactionScheduleInternal": "100", "compactionDeleteRetention": "0"}


def configure(cluster: LocalCluster, members: list[Member]) -> None:
    for member in members:
        file = cluster.directory / "conf" / f"{member.name}.properties"
        lines = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in _KEYS]
        file.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in _KEYS.items()), ""]))


def launch(cluster: LocalCluster, members: list[Member]) -> None:
    started = Started()
    with started.undone_on_failure():
        cluster.launch(members, started)


async def master_of(written: Written, group: str) -> str:
    """Return the address of the member that name servers call the master."""
    async with Traffic(written.client).admin() as admin:
        return (await admin.cluster_info()).broker_addr_table[group].broker_addrs[0]


async def killed_master(written: Written, group: str) -> Member:
    address = await master_of(written, group)
    found = next(one for one in written.cluster.members if one.address == address)
    identity = written.cluster.pid_file(found).running()
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    return found


async def put(table: Table[bytes], key: str, value: bytes) -> None:
    """Put or delete until it is acknowledged."""
    while True:
        try:
            await (table.put(key, value, timeout_s=5) if value else table.delete(key))
        except SprocketError:
            await asyncio.sleep(0.05)
        else:
            return


def part_files(written: Written) -> set[str]:
    return {path.name for path in written.cluster.directory.rglob(f"compacted/{TOPIC}/*/*.log")}


async def test_no_value_is_lost_or_comes_back(tmp_path: Path) -> None:
    written, chance = write(tmp_path, CONTROLLER, OPEN), random.Random(7)
    cluster, group = written.cluster, written.groups[0]
    configure(cluster, [one for one in cluster.members if one.is_broker])
    model: dict[str, bytes] = {}
    seen: set[str] = set()
    try:
        members = [one for one in cluster.members if not one.is_broker or one.broker_name == group]
        await asyncio.to_thread(launch, cluster, members)
        traffic = Traffic(written.client)
        await traffic.send("before", [group])
        async with sprocket.connect(cluster.namesrv) as mq:
            # In one group, so that each key stays in its queue: queues are compacted apart from each other.
            await mq.admin.create_compacted_topic(await master_of(written, group), TOPIC, 2)
            for round_number in range(2):
                async with mq.table(TOPIC, bytes) as table, asyncio.timeout(60):
                    kill_at = chance.randrange(_PUTS // 2, _PUTS)
                    for number in range(_PUTS):
                        key = f"k{chance.randrange(30)}"
                        value = b"" if chance.random() < 0.2 else b"%d:%d " % (round_number, number) * 100
                        await put(table, key, value)
                        model.pop(key, None)
                        if value:
                            model[key] = value
                        if number == kill_at:
                            killed = await killed_master(written, group)
                        seen |= part_files(written)  # a compaction removes the files of the one before
                await asyncio.to_thread(launch, cluster, [killed])
                async with mq.table(TOPIC, bytes) as again, asyncio.timeout(60):
                    while dict(again) != model:
                        await asyncio.sleep(0.05)
        assert len(seen | part_files(written)) > 4
    finally:
        await asyncio.to_thread(cluster.stop, lambda _: None)
