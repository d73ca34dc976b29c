"""Quotas of accounts, which sign their requests: with ACL 1.0 and 2.0, with and without TLS."""

from pathlib import Path

import pytest

from broker.quota.bucket import Kind
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.codes import RequestCode, ResponseCode
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
