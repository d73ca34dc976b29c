"""`sprocket cluster up`, `status`, `down` with real processes, through the command line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket_cli.processes.local_cluster import LocalCluster, Started
from sprocket_cli.processes.ports import PortTaken
from sprocket_cli.processes.profile import find_profile
from tests.compat.ports import free_port, free_port_base

pytestmark = pytest.mark.timeout(240)

Ended = subprocess.CompletedProcess[str]


class Cluster:
    """The commands about the cluster in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port_base = free_port_base()
        self.namesrv = f"127.0.0.1:{self.port_base};127.0.0.1:{self.port_base + 1}"

    def run(self, *arguments: str) -> Ended:
        command = [
            sys.executable,
            "-I",
            "-m",
            "sprocket_cli",
            "cluster",
            *arguments,
            "--directory",
            str(self.directory),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.directory.parent)

    def up(self, *arguments: str) -> Ended:
        return self.run("up", *arguments, "--port-base", str(self.port_base))

    def status(self) -> dict[str, dict[str, Any]]:
        return {row["member"]: row for row in json.loads(self.run("status", "--json").stdout)}

    def states(self) -> dict[str, str]:
        return {name: row["state"] for name, row in self.status().items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.run("down")


async def exchange(namesrv: str, key: str) -> None:
    """One message there and back."""
    async with Producer("PG", namesrv) as producer:
        await producer.send(Message("Orders", key.encode()))
    async with Consumer(f"C-{key}", ["Orders"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        async for message in consumer:
            await consumer.ack(message)
            if message.body == key.encode():
                return


async def test_a_cluster_lives_until_down_and_keeps_its_data(cluster: Cluster) -> None:
    started = cluster.up("2m-2s-async")
    assert started.returncode == 0, started.stderr
    assert "broker-b-s started" in started.stderr
    rows = cluster.status()
    assert {row["state"] for row in rows.values()} == {"running"}
    assert [row["role"] for row in rows.values()] == ["NAMESRV"] * 2 + ["ASYNC_MASTER"] * 2 + ["SLAVE"] * 2
    assert [rows[name]["inSync"] for name in ("broker-a", "broker-a-s", "broker-b-s")] == [None, "yes", "yes"]
    logs = "".join(path.read_text() for path in (cluster.directory / "logs").iterdir())
    assert not [line for line in logs.splitlines() if " INFO " not in line]
    await exchange(cluster.namesrv, "first")

    # A second time nothing is started; one that was killed is shown, and is all that is.
    again = cluster.up("2m-2s-async")
    assert (again.returncode, again.stderr) == (0, "")
    assert {name: row["pid"] for name, row in cluster.status().items()} == {n: row["pid"] for n, row in rows.items()}
    os.kill(rows["broker-a"]["pid"], signal.SIGKILL)
    os.kill(rows["broker-b-s"]["pid"], signal.SIGKILL)
    shown = cluster.run("status")
    assert shown.returncode == 1
    assert {name for name, state in cluster.states().items() if state == "killed"} == {"broker-a", "broker-b-s"}
    repaired = cluster.up()
    assert repaired.returncode == 0, repaired.stderr
    assert repaired.stderr.split() == ["broker-a", "started", "broker-b-s", "started"]

    stopped = cluster.run("down")
    assert stopped.stdout.count(" stopped\n") == 6
    assert set(cluster.states().values()) == {"stopped"}
    assert cluster.run("down").stdout == ""
    assert cluster.up().returncode == 0
    async with Consumer("later", ["Orders"], cluster.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        assert (await anext(consumer)).body == b"first"


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


def test_a_taken_port_is_told_before_anything_is_started(cluster: Cluster) -> None:
    slave, master = cluster.port_base + 1035 + 30, cluster.port_base + 1035
    with listening(slave), listening(master + 1):
        failed = cluster.up("2m-2s-sync")
        assert failed.returncode == 1
        assert failed.stderr == (
            f"Error: taken on 127.0.0.1: port {master + 1} of broker-a (haListenPort); "
            f"port {slave} of broker-b-s (listenPort). "
            "Nothing was started. Stop the process that listens there, or give another --port-base\n"
        )
        # No directory keeps those ports, so another try may have others.
        assert not cluster.directory.exists()


def test_a_taken_port_of_a_cluster_that_is_there(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, find_profile("2m-noslave"), free_port_base())
    cluster.check_ports()
    path = tmp_path / "conf" / "broker-b.properties"
    other = free_port()
    path.write_text(path.read_text().replace("haListenPort=", "haListenPort.before=") + f"haListenPort={other}\n")
    with (
        listening(cluster.masters[1].port + 1),  # of no member any more
        listening(other),
        pytest.raises(PortTaken, match=rf"port {other} of broker-b \(haListenPort\)\. Nothing.*{tmp_path}/conf"),
    ):
        cluster.check_ports()


def test_a_cluster_that_cannot_start_leaves_nothing_and_says_why(cluster: Cluster, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    shutil.copytree(Path(__file__).parents[3] / "conf" / "2m-2s-async", profile)
    with (profile / "broker-b-s.properties").open("a") as file:
        file.write("flushDiskType=SOMETIMES\n")
    failed = cluster.up(str(profile))
    assert failed.returncode == 1
    assert "broker-b-s did not start: it ended with 2; end of its log" in failed.stderr
    assert "flushDiskType" in failed.stderr
    assert set(cluster.states().values()) == {"stopped"}


def test_a_member_that_cannot_be_written_down_is_stopped_with_the_others(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, find_profile("2m-noslave"), free_port_base())
    (tmp_path / "run" / "namesrv-b.new").mkdir(parents=True)
    started = Started()
    with pytest.raises(IsADirectoryError), started.undone_on_failure():
        cluster.launch(cluster.name_servers, started)
    assert started.names == ["namesrv-a", "namesrv-b"]
    assert not cluster.pid_file(cluster.name_servers[0]).exists


def test_a_cluster_that_asks_for_users_is_started_by_one_of_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "profile"
    profile.mkdir()
    asks = (
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        'initAuthenticationUser={"username":"admin","password":"secret-of-admin"}\n'
        'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret-of-inner"}\n'
    )
    (profile / "namesrv.properties").write_text(asks)
    (profile / "broker-a.properties").write_text(f"brokerClusterName=C\nbrokerName=broker-a\nbrokerId=0\n{asks}")
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    refused = cluster.up(str(profile))
    assert refused.returncode == 1
    assert "refuses unsigned requests" in refused.stderr and "tools.yml" in refused.stderr

    home = tmp_path / "home" / "conf"
    home.mkdir(parents=True)
    (home / "tools.yml").write_text("accessKey: admin\nsecretKey: secret-of-admin\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home.parent))
    started = cluster.up(str(profile))
    assert started.returncode == 0, started.stderr
    assert set(cluster.states().values()) == {"running"}
    monkeypatch.delenv("ROCKETMQ_HOME")
    assert set(cluster.states().values()) == {"refusing"}


def test_members_are_judged_by_what_they_are_now(cluster: Cluster) -> None:
    nothing = cluster.run("status")
    assert nothing.returncode == 2 and "no cluster in" in nothing.stderr
    assert cluster.up().returncode == 2  # no profile is named, and none is there
    assert cluster.up("2m-7s").returncode == 2
    started = cluster.up("2m-noslave")
    assert started.returncode == 0, started.stderr
    other = cluster.up("2m-2s-sync")
    assert other.returncode == 2 and "holds the cluster 2m-noslave" in other.stderr

    # One that stands still.
    pid = cluster.status()["namesrv-b"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert cluster.states()["namesrv-b"] == "silent"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert cluster.states()["namesrv-b"] == "running"

    # The file of one that is gone names this test's own process: an id that was used again.
    file = cluster.directory / "run" / "broker-a.json"
    facts = json.loads(file.read_text())
    os.kill(facts["pid"], signal.SIGKILL)
    file.write_text(json.dumps({**facts, "pid": os.getpid()}))
    assert cluster.states()["broker-a"] == "killed"
    assert "broker-a stopped" not in cluster.run("down").stdout  # else this test would have ended here
    assert set(cluster.states().values()) == {"stopped"}


async def test_a_cluster_with_proxies_serves_grpc_clients(cluster: Cluster) -> None:
    """Two pairs and two proxies of two processes each; a proxy that is killed starts again with `up`."""
    pytest.importorskip("grpc")
    from tests.proxy.rig import GrpcClient, handle_of

    started = cluster.up("2m-2s-sync-proxy")
    assert started.returncode == 0, started.stderr
    rows = cluster.status()
    assert {row["state"] for row in rows.values()} == {"running"}
    assert [row["role"] for row in rows.values()][-2:] == ["PROXY"] * 2
    await exchange(cluster.namesrv, "first")  # makes the topic
    ports = [int(rows[name]["address"].rpartition(":")[2]) for name in ("proxy-a", "proxy-b")]
    first, second = (GrpcClient(port, "client") for port in ports)
    await first.receive("Orders", "grpc-group", wait_s=0)
    assert not (await first.send("Orders", "one")).status.code % 20000
    (message,) = await second.messages("Orders", "grpc-group", 1)
    assert message.body == b"one"
    assert not (await first.ack("Orders", "grpc-group", handle_of(message))).status.code % 20000
    os.kill(rows["proxy-a"]["pid"], signal.SIGKILL)
    repaired = cluster.up()
    assert repaired.stderr.split() == ["proxy-a", "started"], repaired.stderr
    assert not (await first.send("Orders", "two")).status.code % 20000
    for client in (first, second):
        await client.close()
    stopped = cluster.run("down")
    assert stopped.stdout.count(" stopped\n") == 8, stopped.stdout


def test_the_status_shows_who_leads_under_controllers(cluster: Cluster, tmp_path: Path) -> None:
    profile, whole = tmp_path / "profile", Path(__file__).parents[3] / "conf" / "controller"
    profile.mkdir()
    for name in ("namesrv-a", "broker-a-1", "broker-a-2"):
        shutil.copy(whole / f"{name}.properties", profile)
    started = cluster.up(str(profile))
    assert started.returncode == 0, started.stderr
    rows = cluster.status()
    brokers = [rows["broker-a-1"], rows["broker-a-2"]]
    assert sorted(row["role"] for row in brokers) == ["MASTER", "SLAVE"]
    assert {row["state"] for row in brokers} == {"running"}
    assert brokers[0]["epoch"] == brokers[1]["epoch"] >= 1
    assert rows["namesrv-a"]["epoch"] is None
