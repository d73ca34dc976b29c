"""Quotas of accounts, which sign their requests: with ACL 1.0 and 2.0, with and without TLS."""

from pathlib import Path

import pytest

from acl.auth.infos import acl_of
from acl.auth.model import User, UserType
from broker.quota.bucket import Kind
from sprocket.client.admin.admin_client import AdminClient, AdminDenied
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from tests.broker.auth.test_withdrawn_permissions import ALICE, guarded
from tests.broker.insides import core_of

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize("generation", [1, 2])
async def test_the_account_that_signs_is_charged(tmp_path: Path, generation: int, is_tls: bool) -> None:
    """The gate decides about the first request; then a kernel proves the others, and charges the same account."""
    name = f"account:{ALICE.access_key}"
    async with guarded(tmp_path, generation, is_tls=is_tls) as one:
        quotas = core_of(one.broker).quotas
        quotas.table.replace(QuotaTableBody({name: Quota(name, messages_in=1, messages_out=1000, burst_millis=60_000)}))
        peer = await one.connect()
        codes = [(await peer.ask((SEND,), ALICE))[0].code for _ in range(10)]
        codes += [answer.code for answer in await peer.ask((SEND,) * 60, ALICE)]
        await peer.ask((PULL,), ALICE)
        tallies = quotas.tallies()
        peer.writer.close()
    assert codes[:10] == [ResponseCode.SUCCESS] * 10
    taken = codes.count(ResponseCode.SUCCESS)
    assert taken >= 60 and codes[-1] == ResponseCode.FLOW_CONTROL
    assert (tallies[name, Kind.MESSAGES_IN].used, tallies[name, Kind.MESSAGES_IN].exceeded) == (taken, 70 - taken)
    assert tallies[name, Kind.MESSAGES_OUT].used > 0


async def test_an_administrator_of_a_namespace_sees_the_quotas_of_what_is_in_it(tmp_path: Path) -> None:
    own = ("topic:shop|orders%*", "group:shop|orders%readers", "account:shop|orders%app", "namespace:shop|orders")
    hidden = (
        "topic:shop|billing%*", "topic:Orders", "topic:*", "topic:shop|*", "namespace:shop|billing", "namespace:shop|*",
        "tenant:shop", "address:10.*", "account:alice12",
    )  # fmt: skip
    async with guarded(tmp_path, 2) as one:
        entry = PolicyEntryInfo("Namespace:shop|orders", ["All"], None, "Allow")
        one.broker.users.tables.update_acl(acl_of(AclInfo(f"User:{ALICE.access_key}", [PolicyInfo(None, [entry])])))
        one.broker.users.tables.create_user(User("root", "secret-of-root", UserType.SUPER))
        table = {name: Quota(name, requests=5) for name in (*own, *hidden)}
        core_of(one.broker).quotas.table.replace(QuotaTableBody(table))
        address = f"127.0.0.1:{one.broker.port}"
        async with AdminClient([address], credentials=ALICE) as alice:
            assert set(await alice.quotas(address)) == set(own)
            assert {use.quota for use in await alice.quota_usage(address)} <= set(own)
            with pytest.raises(AdminDenied):
                await alice.delete_quota(address, own[0])
        async with AdminClient([address], credentials=Credentials("root", "secret-of-root")) as root:
            assert set(await root.quotas(address)) == {*own, *hidden}
