"""More connections than a broker process has descriptors for: it serves on, keeps what files need, says so once."""

import asyncio
import shlex
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
        for number in range(60):
            await send(client, broker.address, number)
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
