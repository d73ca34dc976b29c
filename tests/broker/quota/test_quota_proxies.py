"""Who pays for the requests of a proxy: the client that it names, if the broker trusts the proxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from acl.auth.model import UserType
from broker.quota.bucket import Kind
from broker.server import Broker
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.quota import ChargeCallerRequestHeader
from tests.broker.auth.test_withdrawn_permissions import ALICE, SEND_HEADER, Guarded, guarded
from tests.broker.insides import core_of
from tests.broker.rig import running_broker

INNER: Final = Credentials("cluster1", "secret-of-cluster1")
CHARGE: Final = RequestCode.CHARGE_CALLER


def restrict(broker: Broker, **limits: int) -> None:
    """Set quotas of messages sent: ``account_bob=1`` is that of account:bob."""
    names = {name.replace("_", ":", 1): limit for name, limit in limits.items()}
    table = {name: Quota(name, messages_in=limit, burst_millis=60_000) for name, limit in names.items()}
    core_of(broker).quotas.table.replace(QuotaTableBody(table))


@asynccontextmanager
async def caller(one: Guarded, account: Credentials | None) -> AsyncIterator[Any]:
    client = RemotingClient(credentials=account)

    async def ask(code: int, header: Any, body: bytes = b"") -> ReceivedResponse:
        return await client.invoke(f"127.0.0.1:{one.broker.port}", code, header, body)

    try:
        yield ask
    finally:
        await client.close()


def used(broker: Broker, name: str) -> int:
    tally = core_of(broker).quotas.tallies().get((name, Kind.MESSAGES_IN))
    return 0 if tally is None else tally.used


@asynccontextmanager
async def with_inner(root: Path) -> AsyncIterator[Guarded]:
    inner = f'{{"accessKey": "{INNER.access_key}", "secretKey": "{INNER.secret_key}"}}'
    async with guarded(root, 2, inner_client_authentication_credentials=inner) as one:
        yield one


@pytest.mark.code(RequestCode.CHARGE_CALLER)
async def test_the_client_that_a_proxy_of_the_cluster_names_pays(tmp_path: Path) -> None:
    async with with_inner(tmp_path) as one, caller(one, INNER) as ask:
        assert (await ask(CHARGE, ChargeCallerRequestHeader())).ext_fields == {"chargesCallers": "false"}
        restrict(one.broker, account_alice=2, address_10=5, account_cluster1=100)
        assert (await ask(CHARGE, ChargeCallerRequestHeader())).ext_fields == {"chargesCallers": "true"}
        named = await ask(CHARGE, ChargeCallerRequestHeader(account="alice", address="10"))
        assert named.code == ResponseCode.SUCCESS
        # More than one: from the second on, a kernel serves them by a pass.
        for _ in range(5):
            assert (await ask(RequestCode.SEND_MESSAGE_V2, SEND_HEADER, b"body")).code == ResponseCode.SUCCESS
        assert [used(one.broker, name) for name in ("account:alice", "address:10", "account:cluster1")] == [5, 5, 0]
        await ask(CHARGE, ChargeCallerRequestHeader(address="10"))  # a client without an account
        await ask(RequestCode.SEND_MESSAGE_V2, SEND_HEADER, b"body")
        assert [used(one.broker, name) for name in ("account:alice", "address:10")] == [5, 6]


async def test_nobody_else_chooses_who_pays(tmp_path: Path) -> None:
    async with with_inner(tmp_path) as one:
        restrict(one.broker, account_bob=1, account_alice12=100)
        # The cluster's administrator, who may change everything, is no proxy.
        one.broker.users.tables.update_user(ALICE.access_key, None, UserType.SUPER, None)
        for account in (ALICE, None):
            async with caller(one, account) as ask:
                refused = await ask(CHARGE, ChargeCallerRequestHeader(account="bob", address="10"))
                assert refused.code == ResponseCode.NO_PERMISSION
        async with caller(one, ALICE) as ask:
            assert (await ask(CHARGE, ChargeCallerRequestHeader())).ext_fields == {"chargesCallers": "false"}
            await ask(RequestCode.SEND_MESSAGE_V2, SEND_HEADER, b"body")
        assert [used(one.broker, name) for name in ("account:bob", "account:alice12")] == [0, 1]


async def test_a_broker_without_access_control_trusts_no_proxy(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        restrict(broker, address_10=1)
        refused = await client.ask(CHARGE, ChargeCallerRequestHeader(address="10"))
        assert refused.code == ResponseCode.NO_PERMISSION and "cluster" in (refused.remark or "")
        assert (await client.ask(CHARGE, ChargeCallerRequestHeader())).ext_fields == {"chargesCallers": "false"}


async def test_a_connection_that_signs_as_another_account_pays_for_itself_again(tmp_path: Path) -> None:
    async with with_inner(tmp_path) as one:
        restrict(one.broker, account_bob=100, account_alice12=100)
        client = RemotingClient(credentials=INNER)
        channel = await client.channel(f"127.0.0.1:{one.broker.port}")
        await channel.request(CHARGE, ChargeCallerRequestHeader(account="bob", address="10"), timeout_s=10)
        channel.sign_with(ALICE)
        await channel.request(RequestCode.SEND_MESSAGE_V2, SEND_HEADER, b"body", timeout_s=10)
        assert [used(one.broker, name) for name in ("account:bob", "account:alice12")] == [0, 1]
        await client.close()
