"""A member that is killed, in all three views of a real cluster: the dashboard, `doctor`, and `cluster status`."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket import Message, Producer
from sprocket.client.send_result import SendStatus
from tests.compat.ports import free_port_base
from tests.dashboard.rig import running

pytestmark = pytest.mark.timeout(240)
CONF = Path(__file__).parents[3] / "conf"


class Views:
    """A local cluster of some members of a profile, and what is said of it."""

    def __init__(self, root: Path, profile: str, *members: str) -> None:
        self.root, self.profile = root, root / "profile"
        self.profile.mkdir()
        for member in members:
            shutil.copy(CONF / profile / f"{member}.properties", self.profile)
        base = free_port_base()
        self.namesrv = f"127.0.0.1:{base}"
        up = self.run("cluster", "up", str(self.profile), "--port-base", str(base), "--directory", str(root / "data"))
        assert up.returncode == 0, up.stderr

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-I", "-m", "sprocket_cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.root)

    def status(self) -> list[str]:
        return self.run("cluster", "status", "--directory", str(self.root / "data")).stdout.splitlines()

    def doctor(self) -> list[str]:
        return self.run("doctor", "-n", self.namesrv).stdout.splitlines()

    def pid(self, address_or_role: str) -> int:
        """Return the process of the first member whose row has this word."""
        return next(int(row.split()[3]) for row in self.status() if address_or_role in row.split())

    def kill(self, word: str) -> None:
        os.kill(self.pid(word), signal.SIGKILL)

    def down(self) -> None:
        self.run("cluster", "down", "--directory", str(self.root / "data"))


@pytest.fixture
def views(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Views]:
    found = Views(tmp_path, *request.param)
    yield found
    found.down()


async def shown(views: Views, part: str) -> None:
    """Wait until all three views contain `part`; the dashboard began before the kill."""
    for look in (views.status, views.doctor):
        while part not in (text := "\n".join(await asyncio.to_thread(look))):
            await asyncio.sleep(0.2)
            assert text, "a view says nothing"


@pytest.mark.parametrize(
    "views", [("controller", "namesrv-a", "broker-a-1", "broker-a-2", "broker-a-3")], indirect=True
)
async def test_killed_replicas_under_controllers(views: Views) -> None:
    assert (await asyncio.to_thread(views.status))[0] == "Sends are confirmed by 1 of 1 broker groups."
    async with running(views.namesrv, sample_interval_s=1.0) as (_, visitor):
        page = await visitor.get("/")
        assert "Sends are confirmed by 1 of 1" in page.text and "all 3 replicas" in page.text
        views.kill("SLAVE")
        await shown(views, "broker-a: 1 of 3 replicas gone")
        while "broker-a: 1 of 3 replicas gone since" not in (page := await visitor.get("/")).text:
            await asyncio.sleep(0.2)
        assert "Sends are confirmed by 1 of 1" in page.text
        assert "2 of 3" in page.text

        views.kill("SLAVE")
        await shown(views, "broker-a: 2 of 3 replicas gone")
        bad = "Sends are NOT confirmed by broker-a"
        await shown(views, bad)
        assert (await asyncio.to_thread(views.status))[0].startswith(bad)
        assert (await asyncio.to_thread(views.doctor))[0].startswith(f"failure sends: {bad}")
        while bad not in (page := await visitor.get("/")).text:
            await asyncio.sleep(0.2)
        assert page.text.index(bad) < page.text.index("problems")
    async with Producer("P", views.namesrv) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("views", [("2m-2s-sync", "namesrv-a", "broker-a", "broker-a-s")], indirect=True)
async def test_a_sync_master_without_its_slave(views: Views) -> None:
    async with running(views.namesrv, sample_interval_s=1.0) as (_, visitor):
        assert "Sends are confirmed by 1 of 1" in (await visitor.get("/")).text
        views.kill("broker-a-s")
        bad = "Sends are NOT confirmed by broker-a"
        await shown(views, bad)
        # No controller knows the slave: the dashboard remembers it, and the doctor cannot.
        while "broker-a: 1 of 2 replicas gone since" not in (page := await visitor.get("/")).text:
            await asyncio.sleep(0.2)
        assert bad in page.text and "SLAVE_NOT_AVAILABLE" in page.text
        address = page.html.split('name="address" value="')[1].split('"')[0]
        assert "replicas gone" not in (await visitor.post("/forget", address=address)).text
        assert "broker-a: 1 of 2 replicas gone" in "\n".join(await asyncio.to_thread(views.status))
