"""Every profile and mode behind every kind of guard that docs/ offer, with what operators put beside a cluster.

One cluster for each pair serves all that is asked of the pair.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientSession

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from broker.server import Broker
from controller.server import Controller
from proxy.config import ProxyConfig
from proxy.proxy_server import Proxy
from sprocket.common.clock import SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.metrics.settings import ExporterType
from sprocket_cli.server.server_config import proxy_configuration
from store.backup.backup import Backup
from store.backup.restore import restore
from tests.combinations.profiles import CONTROLLER, DLEDGER, GUARDS, OPERATOR, PROFILES, Guard, Written
from tests.combinations.site import Site, site_at
from tests.combinations.traffic import TOPIC, Traffic, is_refused
from tests.dashboard.rig import running as running_dashboard
from tests.proxy.rig import GrpcClient, handle_of
from tests.proxy.test_access import signed

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
@pytest.mark.parametrize("profile", PROFILES)
async def test_combination(tmp_path: Path, profile: str, guard: Guard) -> None:
    async with site_at(tmp_path, profile, guard) as site:
        traffic = Traffic(site.written.client)
        await traffic.send("before", site.written.groups)
        await traffic.consume("readers")
        for stranger in site.written.strangers:
            assert await is_refused(stranger)
        await _exporters_serve(site)
        await _dashboard_shows(site)
        await _proxy_serves(site, traffic)
        if profile == "2m-noslave":
            await _backup_is_restored(site, traffic, tmp_path)
        else:
            await _master_is_replaced(site, traffic, elects=profile in (CONTROLLER, DLEDGER))


async def _exporters_serve(site: Site) -> None:
    servers = [one for host in site.hosts for one in host.servers if isinstance(one, Broker | Controller)]
    async with ClientSession() as http:
        for server in servers:
            config = server.config.broker if isinstance(server, Broker) else server.settings.current
            if config.metrics_exporter_type is not ExporterType.PROM:
                continue  # the controller inside a broker of DLedger mode
            async with http.get(f"http://127.0.0.1:{config.metrics_prom_exporter_port}/metrics") as page:
                assert "# TYPE" in await page.text()


async def _dashboard_shows(site: Site) -> None:
    client = site.written.client
    first = site.written.cluster.name_servers[0].address
    async with running_dashboard(first, credentials=client.credentials, tls=client.tls) as (_, visitor):
        if site.written.guard.is_signed:
            assert (await visitor.get("/")).status == 303
            assert (await visitor.log_in(OPERATOR.access_key, OPERATOR.secret_key)).status == 303
        page = await visitor.get("/")
        assert page.status == 200
        assert all(group in page.text for group in site.written.groups)
        assert TOPIC in (await visitor.get("/topics")).text


@asynccontextmanager
async def proxy_at(written: Written, store: Path) -> AsyncIterator[tuple[Proxy, GrpcClient]]:
    """A proxy with its own part of the guard and the accounts of a broker, by its store; a client for its gRPC port."""
    given = {
        "namesrvAddr": written.cluster.namesrv, "bindAddress": "127.0.0.1", "grpcServerPort": "0",
        "remotingListenPort": "0", "tlsServerMode": "disabled", "grpcShutdownTimeSeconds": "0",
        "authConfigPath": str(store / "config"),
        **written.guard.proxy,
    }  # fmt: skip
    keys = written.cluster.tls
    if keys is not None:
        given |= {"tlsServerMode": "enforcing", "tlsTestModeEnable": "false"}
        given |= {"tlsCertPath": str(keys.certificate_file("broker")), "tlsKeyPath": str(keys.key_file("broker"))}
    configuration = proxy_configuration(None, given)
    proxy = Proxy(
        configuration.of(ProxyConfig), clock=SystemClock(), choose=random.randrange,
        auth=configuration.of(AuthSettings), gate=configuration.of(GateSettings), tls=written.tls,
    )  # fmt: skip
    await proxy.start()
    port, channel = proxy.listeners[0].port, None
    if keys is not None:
        trusted = grpc.ssl_channel_credentials(keys.authority_file.read_bytes())
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted)
    client = GrpcClient(port, "client", channel)
    try:
        yield proxy, client
    finally:
        await client.close()
        await proxy.stop()


async def _proxy_serves(site: Site, traffic: Traffic) -> None:
    async with proxy_at(site.written, site.master(site.written.groups[0]).broker.config.store.store_path_root_dir) as (
        proxy,
        client,
    ):
        if site.written.guard.proxy.get("authenticationEnabled"):
            assert (await client.send(TOPIC, "unsigned")).status.code == wire.UNAUTHORIZED
            signed(client, OPERATOR.access_key, OPERATOR.secret_key)
        sent = await client.send(TOPIC, "through the proxy")
        assert sent.status.code == wire.OK, sent.status.message
        traffic.acknowledged.add(b"through the proxy")
        missing = set(traffic.acknowledged)
        while missing:  # a send that was not confirmed in time, and was repeated, is here twice
            received = await client.messages(TOPIC, "grpc-readers", 1)
            missing -= {bytes(one.body) for one in received}
            acked = await client.ack(TOPIC, "grpc-readers", *map(handle_of, received))
            assert acked.status.code == wire.OK, acked.status.message
        remoting = Traffic(replace(site.written.client, namesrv=f"127.0.0.1:{proxy.remoting.listeners[0].port}"))
        remoting.acknowledged = traffic.acknowledged
        await remoting.consume("remoting-readers")


async def _master_is_replaced(site: Site, traffic: Traffic, *, elects: bool) -> None:
    """Where a group elects, it goes on; else a slave serves what its master had."""
    stopped = site.master(site.written.groups[0])
    await stopped.stop()
    await traffic.send("after", site.written.groups if elects else site.written.groups[1:])
    if elects:
        assert site.master(site.written.groups[0]) is not stopped
    await traffic.consume("readers-of-replicas")


async def _backup_is_restored(site: Site, traffic: Traffic, directory: Path) -> None:
    host = site.master(site.written.groups[0])
    store, backup = host.broker.config.store.store_path_root_dir, directory / "backup"
    await asyncio.to_thread(lambda: Backup(store, backup, SystemClock(), time.sleep).run())
    await host.stop()
    await asyncio.to_thread(restore, backup, directory / "restored")
    host.move_store(directory / "restored")
    await host.start()
    await traffic.send("after", site.written.groups)
    await traffic.consume("readers-of-the-backup")
