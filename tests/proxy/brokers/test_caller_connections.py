"""Connections of single callers, with brokers that change."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from proxy.brokers import caller_connections
from proxy.brokers.caller_connections import Caller, CallerConnections
from proxy.status import Refusal
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import BrokerRefused
from sprocket.common.clock import Clock, SystemClock
from sprocket.remoting.client import Introduce, RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.quota import ChargeCallerRequestHeader, ChargeCallerResponseHeader
from sprocket.remoting.routes import Action, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.clock import ManualClock
from tests.waiting import until

ALICE = Caller("alice", "10.0.0.1")


class Site:
    """One broker that charges callers, and what `CallerConnections` needs of a `ClientInstance`."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.remoting = RemotingClient()
        self.refuses = self.hangs = self.is_closed = False
        self.hanging = 0

    async def start(self, port: int = 0, *, is_old: bool = False) -> None:
        code = RequestCode.CHARGE_CALLER
        route = Route(code, ChargeCallerRequestHeader, self.charge, Resource.CLUSTER, Action.UPDATE)
        settings = ConnectionSettings("127.0.0.1")
        self.server = RemotingServer(RouteTable([] if is_old else [route]), settings, port=port)
        await self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"

    async def charge(self, request: Request[Any]) -> Response:
        if self.hangs:
            self.hanging += 1
            await asyncio.Event().wait()
        if self.is_closed:
            return Response(ResponseCode.NO_PERMISSION, "no policy")
        if self.refuses and request.header.address is not None:
            return Response(ResponseCode.NO_PERMISSION, "no proxy")
        return Response(header=ChargeCallerResponseHeader(charges_callers=True))

    def masters(self) -> list[str]:
        return [self.address]

    def further_connections(self, introduce: Introduce) -> RemotingClient:
        return RemotingClient(introduce=introduce)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    await made.remoting.channel(made.address)
    yield made
    await made.remoting.close()
    await made.server.stop()


async def test_a_broker_that_has_become_an_older_one_still_gets_what_callers_send(site: Site) -> None:
    callers = CallerConnections(cast(ClientInstance, site))
    await callers.look()
    port = site.server.port
    await site.server.stop()
    await site.start(port, is_old=True)
    own = await callers.channel(site.address, ALICE)
    shared = await site.remoting.channel(site.address)
    assert own is not shared and callers.open_channel(site.address, ALICE) is own
    await callers.look()
    assert callers.open_channel(site.address, ALICE) is shared
    await callers.close()
    assert own.is_closed


async def test_nothing_is_sent_for_a_caller_whom_a_broker_does_not_charge(site: Site) -> None:
    callers = CallerConnections(cast(ClientInstance, site))
    await callers.look()
    site.refuses = True
    with pytest.raises(BrokerRefused, match="no proxy"):
        await callers.channel(site.address, ALICE)
    assert callers.open_channel(site.address, ALICE) is None
    await callers.close()


async def test_a_broker_that_has_refused_is_asked_again_on_the_same_connection(site: Site) -> None:
    site.clock = clock = ManualClock()
    callers = CallerConnections(cast(ClientInstance, site))
    shared = await site.remoting.channel(site.address)
    site.is_closed = True
    await callers.look()
    site.is_closed = False
    await callers.look()
    assert callers.open_channel(site.address, ALICE) is shared
    clock.advance(10)
    await callers.look()
    assert await callers.channel(site.address, ALICE) is not shared
    await callers.close()


async def test_the_share_of_descriptors_bounds_the_connections_of_callers(site: Site) -> None:
    callers = CallerConnections(cast(ClientInstance, site), 2)
    await callers.look()
    many = [await callers.channel(site.address, Caller("mallory", f"fd00::{number}")) for number in range(3)]
    assert [channel.is_closed for channel in many] == [True, False, False]
    await callers.close()


async def test_one_client_with_many_addresses_locks_nobody_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_connections, "MAX_CALLERS", 3)
    callers = CallerConnections(cast(ClientInstance, site))
    await callers.look()
    many = [await callers.channel(site.address, Caller("mallory", f"fd00::{number}")) for number in range(3)]
    assert callers.open_channel(site.address, Caller("mallory", "fd00::0")) is many[0]
    await callers.channel(site.address, ALICE)
    assert [channel.is_closed for channel in many] == [False, True, False] and len(callers) == 3
    site.hangs = True
    waiting = [asyncio.ensure_future(callers.channel(site.address, Caller("bob", str(one)))) for one in range(3)]
    await until(lambda: site.hanging == 3)
    with pytest.raises(Refusal, match="3 clients with quotas"):
        await callers.channel(site.address, Caller("carol", "10.0.0.9"))
    await callers.close()
    await asyncio.gather(*waiting, return_exceptions=True)
