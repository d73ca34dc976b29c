"""Connections of namespaces: which ones count, from when and until when."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.namespace.connections import NamespaceConnections
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.auth import UserInfo
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from tests.broker.insides import core_of
from tests.broker.processor.test_auth_admin import GUARDED, ROOT, askers, user
from tests.broker.rig import TestClient, running_broker
from tests.clock import ManualClock
from tests.waiting import until

OWN, OTHER = "shop|orders", "shop|billing"
ONE, TWO = SimpleNamespace(id=1), SimpleNamespace(id=2)
APP = Credentials(f"{OWN}%app", "secret of app")
FULL = "its clients have its 1 connections"


def limited(*namespaces: str) -> NamespaceConnections:
    connections = NamespaceConnections()
    connections.follow({name: NamespacePolicy(name=name, max_connections=1) for name in namespaces})
    return connections


def test_a_connection_counts_in_the_namespace_of_the_account_that_has_signed_last_until_it_closes() -> None:
    connections = limited(OWN, OTHER)
    one: Any = ONE
    two: Any = TWO
    connections.signed(one, f"{OWN}%app")
    connections.signed(one, f"{OWN}%other")
    with pytest.raises(RequestError, match=FULL):
        connections.signed(two, f"{OWN}%app")
    connections.signed(one, f"{OTHER}%app")
    connections.signed(two, f"{OWN}%app")
    with pytest.raises(RequestError, match=FULL):
        connections.signed(one, f"{OWN}%app")
    assert (connections.count(OWN), connections.count(OTHER)) == (1, 1)
    connections.signed(one, "admin")
    for channel in (two, one):
        connections.channel_closed(channel)
    assert (connections.count(OWN), connections.count(OTHER)) == (0, 0)


def test_a_connection_has_its_place_while_it_joins_groups_and_for_each_reason_once() -> None:
    connections = limited(OWN)
    one: Any = ONE
    two: Any = TWO
    with connections.joining([f"{OTHER}%p", f"{OWN}%g", f"%RETRY%{OWN}%g", "plain"], one):
        with pytest.raises(RequestError, match=FULL), connections.joining([f"{OTHER}%p", f"{OWN}%p"], two):
            raise AssertionError
        connections.joined(f"{OWN}%g", one)
    connections.signed(one, f"{OWN}%app")
    connections.left(f"{OWN}%g", one.id)
    with pytest.raises(RequestError, match=FULL), connections.joining([f"{OWN}%p"], two):
        raise AssertionError
    connections.channel_closed(one)
    assert (connections.count(OWN), connections.count(OTHER)) == (0, 0)


async def test_two_clients_that_begin_together_do_not_both_get_the_last_place(tmp_path: Path) -> None:
    # A heartbeat with so many groups takes several turns, and registers its producers at last.
    groups = [ConsumerData(f"{OTHER}%g{number}") for number in range(12)]
    beat = dumps(HeartbeatData("c", [ProducerData(f"{OWN}%p")], groups))
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await client.ask_well(RequestCode.SET_NAMESPACE, None, dumps(NamespacePolicy(name=OWN, max_connections=1)))
        clients = [TestClient(client.address) for _ in range(4)]
        beats = [one.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), beat) for one in clients for _ in range(2)]
        answers = await asyncio.gather(*beats)
        assert sorted(FULL in (answer.remark or "") for answer in answers) == [False] * 2 + [True] * 6
        connections = core_of(broker).consumers.connections
        assert connections.count(OWN) == 1
        for one in clients:
            await one.remoting.close()
        await until(lambda: not connections.count(OWN) and not connections.count(OTHER))


async def test_a_request_of_an_account_above_the_limit_is_refused_until_a_connection_closes(tmp_path: Path) -> None:
    ask = RequestCode.GET_BROKER_CONFIG
    async with askers(tmp_path, ROOT, APP, APP, **GUARDED) as (broker, (admin, first, second)):
        await admin.well(RequestCode.AUTH_CREATE_USER, user(f"{OWN}%app"), UserInfo(None, "secret of app", "Super"))
        await admin.well(RequestCode.SET_NAMESPACE, None, NamespacePolicy(name=OWN, max_connections=1))
        for _ in range(2):
            await first.well(ask)
        assert FULL in (await second.refused(ask))[1]
        await admin.well(ask)
        await first.remoting.close()
        connections = core_of(broker).consumers.connections
        await until(lambda: not connections.count(OWN))
        assert (await second.ask(ask)).code == ResponseCode.SUCCESS
        assert connections.count(OWN) == 1
