"""Quotas of accounts and addresses hold for the clients of a proxy, in cluster mode and in local mode."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from acl.auth.files import AuthFiles
from acl.auth.model import User, UserType
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from broker.quota.bucket import Kind
from broker.server import Broker
from proxy.config import ProxyConfig
from proxy.proxy_server import Proxy
from sprocket.common.clock import SystemClock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.testing import Broker as BrokerProcess
from tests.broker.insides import core_of
from tests.broker.rig import broker_config, store_config
from tests.proxy.rig import SETTINGS, GrpcClient, handle_of
from tests.proxy.test_access import signed
from tests.send_headers import send_header
from tests.waiting import until

CLUSTER: Final = "QuotaCluster"
TOPIC: Final = "ProxyQuotas"
INNER: Final = json.dumps({"accessKey": "cluster1", "secretKey": "secret-of-cluster1"})
SUPER: Final = {"alice": "alices-secret", "bob": "bobs-secret"}


class Guarded:
    """A broker and a proxy before it, both with access control, in this event loop."""

    def __init__(self, broker: Broker, proxy: Proxy) -> None:
        self.broker = broker
        self.proxy = proxy
        self._clients: list[GrpcClient] = []

    async def restrict(self, *quotas: Quota) -> None:
        """Set quotas, and wait until the proxy knows whether it must name its clients."""
        core_of(self.broker).quotas.table.replace(QuotaTableBody({quota.name: quota for quota in quotas}))
        await self.proxy.brokers.callers.look()

    def used(self, name: str, kind: Kind = Kind.MESSAGES_IN) -> int:
        tally = core_of(self.broker).quotas.tallies().get((name, kind))
        return 0 if tally is None else tally.used

    def client(self, user: str) -> GrpcClient:
        made = signed(GrpcClient(self.proxy.listeners[0].port, f"client-of-{user}"), user, SUPER[user])
        self._clients.append(made)
        return made

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def guarded(root: Path, namesrv: str, mode: str) -> AsyncIterator[Guarded]:
    auth: dict[str, Any] = {
        "authentication_enabled": True, "authorization_enabled": True, "inner_client_authentication_credentials": INNER,
    }  # fmt: skip
    named = broker_config(broker_cluster_name=CLUSTER, broker_name=f"{CLUSTER}-{mode}", namesrv_addr=namesrv, **auth)
    broker = Broker(named, store_config(root))
    files = AuthFiles(root / "config")
    files.load()
    tables = AuthTables(files.save)
    for name, password in SUPER.items():
        tables.create_user(User(name, password, UserType.SUPER))
    await broker.start()
    assert broker.topics.update([TopicConfig(TOPIC, 1, 1)])
    config = ProxyConfig(**{
        **SETTINGS, "namesrv_addr": namesrv, "grpc_server_port": 0, "bind_address": "127.0.0.1",
        "remoting_listen_port": 0, "rocketmq_cluster_name": CLUSTER, "auth_config_path": str(root / "config"),
        "enable_topic_message_type_check": False, "proxy_mode": mode,
    })  # fmt: skip
    here = {"in_process": broker.in_process} if mode == "LOCAL" else {}
    proxy = Proxy(config, clock=SystemClock(), choose=random.randrange, auth=AuthSettings(**auth), **here)
    await proxy.start()
    one = Guarded(broker, proxy)
    try:
        await until(lambda: proxy.is_serving)
        yield one
    finally:
        await one.close()
        await proxy.stop()
        await broker.stop()


@pytest.fixture(params=["CLUSTER", "LOCAL"])
async def one(request: pytest.FixtureRequest, tmp_path: Path, shared_broker: BrokerProcess) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, shared_broker.namesrv, request.param) as made:
        yield made


async def test_the_account_of_a_grpc_client_pays_for_what_it_sends_and_reads(one: Guarded) -> None:
    alice, bob = one.client("alice"), one.client("bob")
    await alice.receive(TOPIC, "readers", wait_s=0)  # the group begins at the end
    await one.restrict(
        Quota("account:alice", messages_in=2, messages_out=1000, requests=1000, burst_millis=1),
        Quota("account:cluster1", requests=1000),
    )
    answers = await asyncio.gather(*(alice.send(TOPIC, str(number)) for number in range(10)))
    refused = [answer.status.message for answer in answers if answer.status.code == wire.TOO_MANY_REQUESTS]
    assert refused and "account alice" in refused[0]
    sent = len(answers) - len(refused)
    assert one.proxy.brokers.slowed  # in both modes
    assert (await bob.send(TOPIC, "of another account")).status.code == wire.OK
    received = await alice.messages(TOPIC, "readers", sent + 1)
    assert (await alice.ack(TOPIC, "readers", *map(handle_of, received))).status.code == wire.OK
    assert one.used("account:alice", Kind.MESSAGES_OUT) == len(received) == sent + 1
    # The sends, at least one pop, and the acknowledgements.
    assert one.used("account:alice", Kind.REQUESTS) >= sent + 1 + len(received)
    assert one.used("account:cluster1", Kind.REQUESTS) == 0


async def test_a_remoting_client_behind_the_proxy_pays_by_account_and_address(one: Guarded) -> None:
    remoting = RemotingClient(credentials=Credentials("bob", SUPER["bob"]))
    address = f"127.0.0.1:{one.proxy.remoting.listeners[0].port}"

    async def send() -> int:
        header = send_header(TOPIC, properties="UNIQ_KEY\x010A000001000000000000000000000001\x02")
        return (await remoting.invoke(address, RequestCode.SEND_MESSAGE_V2, header, b"body")).code

    assert await send() == ResponseCode.SUCCESS
    await one.restrict(Quota("account:bob", messages_in=2, burst_millis=60_000), Quota("address:127.0.0.1", requests=9))
    assert [await send() for _ in range(2)] == [ResponseCode.SUCCESS] * 2
    await one.restrict(Quota("account:bob", messages_in=1, burst_millis=1000), Quota("address:127.0.0.1", requests=9))
    assert ResponseCode.FLOW_CONTROL in [await send() for _ in range(5)]
    assert one.used("address:127.0.0.1", Kind.REQUESTS) >= 2
    assert len(one.proxy.brokers.callers) == 1
    await remoting.close()


async def test_without_such_quotas_clients_share_one_connection(one: Guarded) -> None:
    await one.restrict(Quota(f"topic:{TOPIC}", messages_in=1000))
    assert (await one.client("alice").send(TOPIC, "x")).status.code == wire.OK
    assert len(one.proxy.brokers.callers) == 0
    await one.restrict(Quota("account:*", messages_in=1000))
    assert (await one.client("alice").send(TOPIC, "x")).status.code == wire.OK
    assert (await one.client("bob").send(TOPIC, "x")).status.code == wire.OK
    assert len(one.proxy.brokers.callers) == 2
    await one.restrict()
    assert (await one.client("alice").send(TOPIC, "x")).status.code == wire.OK
