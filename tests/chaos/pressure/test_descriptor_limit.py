"""More connections than a broker process has descriptors for: it serves on, keeps what files need, says so once."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sprocket.remoting.client import ConnectFailed, RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.pending import ConnectionLost, RemotingTimeout
from tests.chaos.pressure.test_hostile_peers import send_header
from tests.compat.cluster import Server, SprocketCluster

LIMIT = 256


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may have `LIMIT` descriptors, and cannot raise that."""
    start = Server.start

    def limited(server: Server) -> None:
        if "mqbroker" in str(server.command[0]):
            server.command = ["sh", "-c", f"ulimit -n {LIMIT}; exec {shlex.join(server.command)}"]
        start(server)

    monkeypatch.setattr(Server, "start", limited)


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def send(client: RemotingClient, address: str, number: int) -> None:
    response = await client.invoke(address, RequestCode.SEND_MESSAGE_V2, send_header(number), b"x" * 9000, timeout_s=10)
    assert response.code == ResponseCode.SUCCESS, response.remark


async def send_many(client: RemotingClient, address: str) -> None:
    """New segments and queues need descriptors."""
    for number in range(60):
        await send(client, address, number)


async def connect(address: str, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = address.split(":")
    return [await asyncio.open_connection(host, int(port)) for _ in range(count)]


@pytest.mark.timeout(300)
async def test_more_connections_than_descriptors(tmp_path: Path, few_descriptors: None) -> None:
    with SprocketCluster(tmp_path, properties={"mappedFileSizeCommitLog": "65536"}) as cluster:
        broker = cluster.brokers[0]
        client = RemotingClient()
        await send(client, broker.address, 0)
        strangers = await connect(broker.address, 2 * LIMIT)
        descriptors = open_descriptors(broker.pid)
        assert descriptors < LIMIT - 40
        # Files are created, mapped and synced meanwhile; earlier connections are served.
        await send_many(client, broker.address)
        broker.check()
        newcomer = RemotingClient()
        with pytest.raises((ConnectionLost, ConnectFailed, RemotingTimeout)):
            await send(newcomer, broker.address, 0)
        await newcomer.close()
        for _, writer in strangers:
            writer.transport.abort()
        for _ in range(500):
            if open_descriptors(broker.pid) < descriptors // 2:
                break
            await asyncio.sleep(0.02)
        newcomer = RemotingClient()
        await send(newcomer, broker.address, 0)
        await newcomer.close()
        await client.close()
        broker.check()
        said = [line for line in broker.output.read_text().splitlines() if "event=descriptors" in line]
        assert [line.split("state=")[1].split()[0] for line in said] == ["refusing", "accepting"]


HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Never-Ends: "


def limited_process(words: list[str], folder: Path, log: Path) -> subprocess.Popen[str]:
    command = ["sh", "-c", f"ulimit -n {LIMIT}; exec {shlex.join(words)}"]
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    with log.open("w") as stderr:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder, env=environment)


@pytest.mark.timeout(300)
async def test_half_requests_at_every_page_of_a_process_end_nothing(tmp_path: Path) -> None:
    """Broker, name server, dashboard, health and metrics of one process share its descriptors."""
    settings = (
        "healthPort=0",
        "metricsExporterType=PROM",
        "metricsPromExporterPort=0",
        "mappedFileSizeCommitLog=65536",
    )
    words = [
        sys.executable, "-I", "-m", "sprocket_cli", "standalone", "--json", "--store", str(tmp_path / "store"),
        "--port", "0", "--namesrv-port", "0", "--dashboard-port", "0", *(w for one in settings for w in ("--set", one)),
    ]  # fmt: skip
    log = tmp_path / "log"
    process = limited_process(words, tmp_path, log)
    strangers: list[asyncio.StreamWriter] = []
    client = RemotingClient()
    try:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        pages = [
            int(line.rsplit("port=", 1)[1]) for line in log.read_text().splitlines() if "event=page_served" in line
        ]
        assert len(pages) == 2
        await send(client, facts["address"], 0)
        sending = asyncio.create_task(send_many(client, facts["address"]))
        for port in (facts["dashboardPort"], *pages, facts["haListenPort"], facts["port"]):
            opened = [asyncio.open_connection("127.0.0.1", port) for _ in range(LIMIT)]
            for _, writer in await asyncio.gather(*opened):
                writer.write(HALF)
                strangers.append(writer)
        await sending
        await send_many(client, facts["address"])
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        await client.close()
        for writer in strangers:
            writer.transport.abort()
        process.terminate()
        assert process.wait(60) == 0, log.read_text()[-4000:]
