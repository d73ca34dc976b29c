"""SIGKILL of masters whose group elects another one, with access control and TLS everywhere: real processes."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sprocket_cli.processes.local_cluster import LocalCluster, Started
from tests.combinations.profiles import CONTROLLER, DLEDGER, USERS_AND_TLS, Written, write
from tests.combinations.traffic import Traffic

pytestmark = pytest.mark.timeout(240)


def _start(cluster: LocalCluster) -> None:
    started = Started()
    with started.undone_on_failure():
        cluster.launch(cluster.members, started)


async def _master(written: Written, traffic: Traffic, group: str) -> str:
    """Return the name of the member that name servers call the master."""
    async with traffic.admin() as admin:
        table = (await admin.cluster_info()).broker_addr_table
    address = table[group].broker_addrs[0]
    return next(one.name for one in written.cluster.members if one.address == address)


@pytest.mark.parametrize("profile", [CONTROLLER, DLEDGER])
async def test_a_replica_takes_over_in_a_guarded_group(tmp_path: Path, profile: str) -> None:
    written = write(tmp_path, profile, USERS_AND_TLS)
    cluster, group, traffic = written.cluster, written.groups[0], Traffic(written.client)
    try:
        await asyncio.to_thread(_start, cluster)
        await traffic.send("before", [group])
        name = await _master(written, traffic, group)
        killed = next(one for one in cluster.members if one.name == name)
        identity = cluster.pid_file(killed).running()
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        await traffic.send("after", [group])
        assert await _master(written, traffic, group) != name
        await traffic.consume("readers")
    finally:
        await asyncio.to_thread(cluster.stop, lambda _: None)
