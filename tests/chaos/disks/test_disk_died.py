"""The runbook of docs/disk-died.md: a member is killed, its folder is removed, and no acknowledged message is lost."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sprocket
from sprocket import ConsumeFrom, Message, SendStatus
from tests.compat.ports import free_port_base

pytestmark = pytest.mark.timeout(240)
MESSAGES = 40


class Cluster:
    """A local cluster, driven by the commands of the runbook."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.folder = folder / "cluster"
        self._port_base = free_port_base()
        self._profile = profile
        self.up()
        servers = [row["address"] for row in self.status().values() if row["role"] == "NAMESRV"]
        self.namesrv = ";".join(servers)

    def command(self, *words: str, statuses: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, "-I", "-m", "sprocket_cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder.parent)
        assert done.returncode in statuses, done.stdout + done.stderr
        return done.stdout

    def up(self) -> None:
        folder, base = str(self.folder), str(self._port_base)
        self.command("cluster", "up", self._profile, "--directory", folder, "--port-base", base)

    def down(self) -> None:
        self.command("cluster", "down", "--directory", str(self.folder))

    def status(self) -> dict[str, dict[str, Any]]:
        # The status 1 says that a member does not run.
        shown = self.command("cluster", "status", "--directory", str(self.folder), "--json", statuses=(0, 1))
        return {row["member"]: row for row in json.loads(shown)}

    def store(self, member: str) -> Path:
        return self.folder / member / "store"

    def lose(self, member: str) -> None:
        """Kill a member, and take its disk away."""
        os.kill(self.status()[member]["pid"], signal.SIGKILL)
        while self.status()[member]["state"] == "running":
            time.sleep(0.1)
        shutil.rmtree(self.store(member))


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, request.param)
    try:
        yield cluster
    finally:
        cluster.down()


async def acknowledged(namesrv: str) -> set[bytes]:
    """Send to every broker, and return the messages with SEND_OK."""
    sent = set()
    async with sprocket.connect(namesrv) as mq:
        producer = mq.producer("disk-died")
        for number in range(MESSAGES):
            body = f"{number}".encode()
            if (await producer.send(Message("Payments", body))).status is SendStatus.SEND_OK:
                sent.add(body)
    return sent


async def readable(namesrv: str, expected: set[bytes]) -> None:
    """Return as soon as a new group has received all of `expected`."""
    missing = set(expected)
    async with sprocket.connect(namesrv) as mq:
        consumer = mq.consumer(f"reader-{time.time_ns()}", "Payments", consume_from=ConsumeFrom.FIRST)
        async for message in consumer:
            missing.discard(message.body)
            await message.ack()
            if not missing:
                return


@pytest.mark.parametrize("cluster", ["2m-2s-sync"], indirect=True)
@pytest.mark.parametrize("member", ["broker-a", "broker-a-s"])
async def test_an_empty_member_of_a_pair_takes_everything_from_the_other(cluster: Cluster, member: str) -> None:
    sent = await acknowledged(cluster.namesrv)
    assert len(sent) == MESSAGES
    cluster.lose(member)
    cluster.up()
    while cluster.status()["broker-a-s"]["inSync"] != "yes":
        await asyncio.sleep(0.2)
    await readable(cluster.namesrv, sent)


@pytest.mark.parametrize("cluster", ["2m-noslave"], indirect=True)
async def test_a_master_without_a_slave_comes_back_from_its_backup(cluster: Cluster, tmp_path: Path) -> None:
    sent = await acknowledged(cluster.namesrv)
    cluster.command("store", "backup", str(cluster.store("broker-a")), "--to", str(tmp_path / "backup"), "--verify")
    cluster.lose("broker-a")
    cluster.command("store", "restore", str(tmp_path / "backup"), "--to", str(cluster.store("broker-a")))
    assert "nothing is wrong" in cluster.command("store", "check", str(cluster.store("broker-a")))
    cluster.up()
    await readable(cluster.namesrv, sent)


@pytest.mark.parametrize("cluster", ["controller"], indirect=True)
async def test_an_emptied_replica_of_a_group_under_controllers_joins_again(cluster: Cluster) -> None:
    sent = await acknowledged(cluster.namesrv)
    members = cluster.status()
    master = next(name for name, row in members.items() if name.startswith("broker-a") and "MASTER" in row["role"])
    cluster.lose(master)
    cluster.up()
    while any(row["state"] != "running" for row in cluster.status().values()):
        await asyncio.sleep(0.2)
    await readable(cluster.namesrv, sent)
