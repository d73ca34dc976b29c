"""One name server and one broker for all tests of commands."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from tests.sprocket_cli.programs import BROKER_FLAGS, ServerProcess, await_masters, server


@dataclass(frozen=True)
class Cluster:
    """A running name server and broker, and the folder that is the home of both."""

    folder: Path
    name_server: ServerProcess
    broker: ServerProcess

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.name_server.port}"

    async def await_route(self, topic: str, queues: int = 1) -> None:
        """Wait until the name server has a topic with `queues`: it learns of changes a moment later."""
        async with AdminClient(self.namesrv) as admin:
            while True:
                try:
                    route = await admin.topic_route(topic)
                    if all(part.read_queue_nums >= queues for part in route.queue_datas):
                        return
                except AdminError:
                    pass  # not yet known
                await asyncio.sleep(0.02)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with server(folder, "namesrv", "--set", "listenPort=0") as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        with server(folder, "broker", "-n", namesrv, *BROKER_FLAGS) as broker:
            await_masters(namesrv)
            yield Cluster(folder, name_server, broker)
            assert broker.stop() == 0
        assert name_server.stop() == 0
