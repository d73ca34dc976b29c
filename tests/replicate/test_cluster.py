"""The connection to one cluster."""

import asyncio

import pytest

from replicate import cluster
from replicate.records import QUEUES, TOPIC
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.clock import SystemClock
from sprocket.testing import Broker
from tests.replicate.clusters import LIMIT_S


async def test_a_table_that_takes_longer_than_one_wait_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_TABLE_LIMIT_S", 0.001)
    with Broker() as broker:
        async with cluster.Cluster("a", ClientSettings(namesrv=broker.namesrv), SystemClock()) as opened:
            await opened.admin.create_table_topic(TOPIC, queues=QUEUES)
            is_open = False
            async with asyncio.timeout(LIMIT_S):
                while not is_open:
                    try:
                        is_open = await opened.open_table(create=False)
                    except TimeoutError:
                        continue
            assert not opened.records


async def test_a_table_is_made_though_no_broker_was_known_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    make, calls = AdminClient.create_table_topic, 0

    async def made(self: AdminClient, topic: str, *, queues: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await make(self, topic, queues=queues)

    monkeypatch.setattr(AdminClient, "create_table_topic", made)
    with Broker() as broker:
        async with cluster.Cluster("a", ClientSettings(namesrv=broker.namesrv), SystemClock()) as opened:
            assert await opened.open_table(create=True)
