"""Start before the brokers, graceful stop, named listeners, TLS and plain text on one port, health and reflection."""

import asyncio
import datetime
import random
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from proxy.brokers.slowed_callers import SlowedCallers
from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.proxy_server import Proxy
from proxy.server.byte_budget import ByteBudget
from proxy.server.dispatcher import SERVICE, Dispatcher, Limits, Methods
from proxy.server.intake import Intake
from proxy.server.port import PeerBehind, Port
from sprocket.common.clock import SystemClock
from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from sprocket_cli.processes.tls_folder import TlsFolder
from tests.compat.ports import free_port
from tests.proxy.rig import ENDPOINTS, Anybody, Rig, consumer_settings, handle_of, receive_request, running
from tests.waiting import until


def _route(topic: str) -> wire.QueryRouteRequest:
    return wire.QueryRouteRequest(topic=wire.Resource(name=topic), endpoints=ENDPOINTS)


@pytest.mark.parametrize("mode", ["permissive", "disabled", "enforcing"])
async def test_connections_are_refused_before_brokers_are_there(mode: str) -> None:
    config = ProxyConfig(
        namesrv_addr=f"127.0.0.1:{free_port()}", grpc_server_port=0, remoting_listen_port=0, bind_address="127.0.0.1",
        tls_server_mode=mode, listeners='[{"name": "lan", "port": 0}]',
    )  # fmt: skip
    proxy = Proxy(config, clock=SystemClock(), choose=random.randrange)
    await proxy.start()
    try:
        ports = {listener.port for listener in [*proxy.listeners, *proxy.remoting.listeners]}
        assert len(ports) == 3
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
    finally:
        await proxy.stop()


@pytest.mark.parametrize("mode", ["permissive", "disabled", "enforcing"])
async def test_two_proxies_that_wait_at_one_port_do_not_both_serve(mode: str) -> None:
    config = ProxyConfig(bind_address="127.0.0.1", tls_server_mode=mode)
    methods = Methods({}, {}, lambda *_: None, lambda *_: None)

    def dispatcher(listener: Callable[[], Listener], peer_behind: PeerBehind) -> Dispatcher:
        slowed = SlowedCallers(SystemClock.monotonic)
        return Dispatcher(methods, listener, Anybody(), Intake(1, 1), Limits(1.0, 1.0), slowed, peer_behind)

    async def opened(number: int) -> Port:
        port = Port(Listener("default", number), config, dispatcher, DescriptorReserve(), ByteBudget(1))
        await port.open(is_shared=False)
        return port

    first = await opened(0)
    second = await opened(first.listener.port)  # nobody listens yet
    try:
        await first.serve()
        with pytest.raises(ConfigError, match="cannot be listened on"):
            await second.serve()
    finally:
        await first.stop()
        await second.stop()


@pytest.mark.parametrize("mode", ["permissive", "disabled"])
async def test_proxy_waits_for_brokers_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("Early")
        broker.stop()
        config = ProxyConfig(
            namesrv_addr=broker.namesrv, grpc_server_port=0, bind_address="127.0.0.1", tls_server_mode=mode
        )
        proxy = Proxy(config, clock=SystemClock(), choose=random.randrange)
        await proxy.start()
        try:
            assert not proxy.is_serving and "event=waiting_for_brokers" in caplog.text
            rig = Rig(proxy, broker)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rig.client().call("QueryRoute", _route("Early"), timeout_s=1)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            broker.start()
            await until(lambda: proxy.is_serving, 30)
            options = [("grpc.use_local_subchannel_pool", 1)]  # without the memory of the failure above
            fresh = rig.client(channel=grpc.aio.insecure_channel(f"127.0.0.1:{rig.port}", options=options))
            assert (await fresh.call("QueryRoute", _route("Early"))).status.code == wire.OK
            await rig.close()
        finally:
            await proxy.stop()


async def test_stop_finishes_long_polls_and_waits_for_acknowledgements(broker: Broker, topic: str) -> None:
    async with running(broker, grpc_shutdown_time_seconds=20) as rig:
        client, sender = rig.client(), rig.client()
        stream, _ = await client.report(consumer_settings(topic, "group-stop"))
        await client.receive(topic, "group-stop", wait_s=0)
        request = receive_request(topic, "group-stop", wait_s=10, auto_renew=True)
        polling = asyncio.ensure_future(client.stream("ReceiveMessage", request))
        await asyncio.sleep(0.3)
        stopping = asyncio.ensure_future(rig.proxy.stop())
        await asyncio.sleep(0.3)
        refused = await sender.receive(topic, "group-stop")
        assert refused[0].status.code == wire.TOO_MANY_REQUESTS
        asked = health_pb2.HealthCheckRequest(service=SERVICE.full_name)
        health = await health_pb2_grpc.HealthStub(sender.channel).Check(asked)
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await sender.send(topic, "last")
        (received,) = [part.message for part in await polling if part.HasField("message")]
        await asyncio.sleep(0.3)
        assert not stopping.done()  # a client works on a message
        assert (await client.ack(topic, "group-stop", handle_of(received))).status.code == wire.OK
        await asyncio.wait_for(stopping, 10)
        stream.cancel()
    async with running(broker) as rig:
        assert not await rig.client().messages(topic, "group-stop", 1, wait_s=0)


async def test_stop_releases_what_is_not_acknowledged(broker: Broker, topic: str) -> None:
    async with running(broker, default_invisible_time_mills=600_000) as rig:
        client = rig.client()
        stream, _ = await client.report(consumer_settings(topic, "group-left"))
        await client.receive(topic, "group-left", wait_s=0)
        await client.send(topic, "left")
        assert len(await client.messages(topic, "group-left", 1, auto_renew=True)) == 1
        stream.cancel()
    async with running(broker) as rig:
        assert len(await rig.client().messages(topic, "group-left", 1)) == 1


async def test_route_names_the_address_of_the_listener(broker: Broker, topic: str) -> None:
    listeners = '[{"name": "outside", "port": 0, "advertise": "proxy.example:443"}, {"name": "lan", "port": 0}]'
    async with running(broker, listeners=listeners) as rig:
        found = []
        for listener in rig.proxy.listeners:
            answer = await rig.client(port=listener.port).call("QueryRoute", _route(topic))
            endpoints = answer.message_queues[0].broker.endpoints
            found.append((endpoints.scheme, endpoints.addresses[0].host, endpoints.addresses[0].port))
        ports = {listener.name: listener.port for listener in rig.proxy.listeners}
        assert found == [
            (wire.IPv4, "127.0.0.1", ports["default"]),
            (wire.DOMAIN_NAME, "proxy.example", 443),
            (wire.IPv4, "127.0.0.1", ports["lan"]),
        ]


@pytest.mark.parametrize(
    "text", ["no json", "{}", '[{"name": "a"}]', '[{"name": "a", "port": 1, "advertise": "b"}]', '[{"nam": "a"}]']
)
def test_listeners_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        ProxyConfig(listeners=text).check()


async def test_port_takes_tls_and_plain_text(broker: Broker, topic: str, tmp_path: Path) -> None:
    folder = TlsFolder(tmp_path)
    folder.create(["localhost"], datetime.datetime.now(datetime.UTC), 1)
    cert, key = tmp_path / "broker.pem", tmp_path / "broker.key"
    settings = {"tls_test_mode_enable": False, "tls_cert_path": str(cert), "tls_key_path": str(key)}
    async with running(broker, tls_server_mode="permissive", **settings) as rig:
        plain = rig.client()
        trusted = grpc.ssl_channel_credentials(folder.authority_file.read_bytes())
        secure = rig.client(channel=grpc.aio.secure_channel(f"localhost:{rig.port}", trusted))
        for client in (plain, secure):
            assert (await client.send(topic, "x")).status.code == wire.OK
        await plain.receive(topic, "group-tls", wait_s=0)
        await secure.send(topic, "y" * 300_000)
        (received,) = await plain.messages(topic, "group-tls", 1)
        assert len(received.body) == 300_000 and received.system_properties.born_host.startswith("127.0.0.1:")


async def test_tls_alone_refuses_plain_text(broker: Broker, topic: str, tmp_path: Path) -> None:
    folder = TlsFolder(tmp_path)
    folder.create(["localhost"], datetime.datetime.now(datetime.UTC), 1)
    settings = {"tls_test_mode_enable": False, "tls_cert_path": str(tmp_path / "broker.pem")}
    settings["tls_key_path"] = str(tmp_path / "broker.key")
    async with running(broker, tls_server_mode="enforcing", **settings) as rig:
        with pytest.raises(grpc.aio.AioRpcError):
            await rig.client().call("QueryRoute", _route(topic), timeout_s=2)
        trusted = grpc.ssl_channel_credentials(folder.authority_file.read_bytes())
        secure = rig.client(channel=grpc.aio.secure_channel(f"localhost:{rig.port}", trusted))
        assert (await secure.send(topic, "x")).status.code == wire.OK


async def test_health_and_reflection(rig: Rig) -> None:
    channel = rig.client().channel
    checked = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE.full_name))
    assert checked.status == health_pb2.HealthCheckResponse.SERVING

    async def asked():  # type: ignore[no-untyped-def]
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    answers = [one async for one in reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked())]
    assert SERVICE.full_name in [one.name for one in answers[0].list_services_response.service]


async def test_port_in_use_is_refused_by_name(broker: Broker, rig: Rig) -> None:
    for mode in ("permissive", "disabled"):
        config = ProxyConfig(
            namesrv_addr=broker.namesrv, grpc_server_port=rig.port, bind_address="127.0.0.1", tls_server_mode=mode
        )
        proxy = Proxy(config, clock=SystemClock(), choose=random.randrange)
        with pytest.raises(ConfigError, match=str(rig.port)):
            await proxy.start()
        await proxy.stop()
