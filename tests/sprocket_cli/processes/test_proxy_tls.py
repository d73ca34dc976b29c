"""A cluster with a proxy that demands TLS of everybody: of clients at the proxy, and of the proxy at servers."""

import asyncio
import datetime
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import sprocket
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket_cli.processes.local_cluster import LocalCluster, Started
from sprocket_cli.processes.profile import Plan, Profile
from sprocket_cli.processes.tls_folder import TlsFolder
from tests.compat.ports import free_port_base
from tests.proxy.rig import GrpcClient, message

_BROKER = "brokerName=broker-a\nbrokerClusterName=DefaultCluster\nautoCreateTopicEnable=true\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    folder = TlsFolder(tmp_path / "keys")
    folder.create(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC), 1)
    plans = (
        Plan("namesrv-a", "NAMESRV"),
        Plan("broker-a", "ASYNC_MASTER", _BROKER, "DefaultCluster", "broker-a"),
        Plan("proxy-a", "PROXY", '{"rocketMQClusterName": "DefaultCluster"}'),
    )
    cluster = LocalCluster.create(tmp_path / "cluster", Profile("one", plans), free_port_base(), folder)
    started = Started()
    with started.undone_on_failure():
        cluster.launch(cluster.members, started)
    try:
        yield cluster
    finally:
        cluster.stop(lambda line: None)


async def test_a_message_passes_through_a_cluster_that_demands_tls(cluster: LocalCluster) -> None:
    (proxy,) = cluster.proxies
    assert cluster.tls is not None
    trusted = grpc.ssl_channel_credentials(cluster.tls.authority_file.read_bytes())
    client = GrpcClient(proxy.port, "client", grpc.aio.secure_channel(proxy.address, trusted))
    stranger = GrpcClient(proxy.port, "stranger")
    try:
        # The proxy serves as soon as it knows of the broker.
        async with asyncio.timeout(60):
            await client.channel.channel_ready()
        async with sprocket.connect(cluster.namesrv, tls=cluster.tls.client_settings()) as mq:
            await mq.producer().send(sprocket.Message("Orders", b"first"))  # it makes the topic
        request = wire.SendMessageRequest(messages=[message("Orders", "x")])
        async with asyncio.timeout(60):  # the broker tells the name server of the topic meanwhile
            while (sent := await client.call("SendMessage", request)).status.code == wire.TOPIC_NOT_FOUND:
                await asyncio.sleep(0.1)
        assert sent.status.code == wire.OK
        received = await client.messages("Orders", "billing", 2)
        assert {one.body for one in received} == {b"first", b"x"}
        with pytest.raises(grpc.aio.AioRpcError):
            await stranger.call("QueryRoute", wire.QueryRouteRequest(topic=wire.Resource(name="Orders")), timeout_s=2)
    finally:
        await client.close()
        await stranger.close()
