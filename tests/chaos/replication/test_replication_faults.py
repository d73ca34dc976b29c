"""Masters and slaves as processes, whose nodes and links fail: what is lost, and that all goes on afterwards.

The longer runs are those of `tests.chaos.replication_soak`.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode
from tests.chaos.disks.mounted import run_mounted
from tests.chaos.load import TOPIC, Load
from tests.chaos.nursery import Nursery
from tests.chaos.replication.pair import ChaosNameServers, ChaosPair, ask
from tests.chaos.replication.replication_rounds import QUICK_TO_JUDGE, bad_weather, lose_masters

pytestmark = pytest.mark.timeout(240)
_SMALL_SEGMENTS = {"mappedFileSizeCommitLog": str(128 * 1024)}


@pytest.fixture(scope="module")
def name_servers(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ChaosNameServers(nursery, tmp_path_factory.mktemp("namesrv")) as servers:
        yield servers.addresses


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_master_is_lost_with_its_disk(nursery: Nursery, tmp_path: Path, name_servers: str, role: str) -> None:
    """SYNC_MASTER loses nothing that was answered SEND_OK, ASYNC_MASTER no more than its slave lacked, at the end."""
    load = Load()
    # Several segments: a new slave has to have all of them, or the next loss is one of what was acknowledged before.
    with ChaosPair(nursery, tmp_path / f"lost-{role}", name_servers, role, _SMALL_SEGMENTS) as pair:
        await pair.start()
        await load.prepare(pair.master.direct)
        await lose_masters(pair, load, rounds=2, seed=1)
        await load.sends(pair.master.direct, 100)
        await pair.assert_same_log()


async def test_a_master_comes_back_as_the_master_with_an_empty_disk(
    nursery: Nursery, tmp_path: Path, name_servers: str
) -> None:
    """Its slave holds the only copy of everything that was answered SEND_OK, and gives it log, topics and offsets."""
    load = Load()
    with ChaosPair(nursery, tmp_path / "returns", name_servers, "SYNC_MASTER", _SMALL_SEGMENTS) as pair:
        await pair.start()
        await load.prepare(pair.master.direct)
        for _ in range(2):
            await load.sends(pair.master.direct, 200)
            sending = asyncio.ensure_future(load.until_dead(pair.master.direct, others=False))
            await asyncio.sleep(0.2)
            pair.master.kill()
            await sending
            pair.master.lose_disk()
            pair.master.start_as(pair.role)
            await pair.await_caught_up()
            assert await load.problems(pair.master.direct, whole=True) == []
            assert b'"' + TOPIC.encode() + b'"' in await ask(pair.slave.direct, RequestCode.GET_ALL_TOPIC_CONFIG)
        await pair.assert_same_log()


async def test_nodes_and_links_fail_for_a_while(nursery: Nursery, tmp_path: Path, name_servers: str) -> None:
    """Each fault once, under load; at last the master is lost with its disk."""
    load = Load()
    with ChaosPair(nursery, tmp_path / "weather", name_servers, "SYNC_MASTER", QUICK_TO_JUDGE) as pair:
        await pair.start()
        await load.prepare(pair.master.direct)
        await bad_weather(pair, load, seed=2, longest_s=1.0)
        assert load.undecided, "no fault was long enough for a send to be answered otherwise than SEND_OK"
        await lose_masters(pair, load, rounds=1, seed=3)


def test_disks_of_a_slave_and_its_master_fill_up() -> None:
    outcome = run_mounted("tests.chaos.replication.replica_disk_full", "--cycles", "1", "--role", "SYNC_MASTER")
    assert outcome["problems"] == []
    assert outcome["refused"] and outcome["undecided"] and outcome["acknowledged"]
