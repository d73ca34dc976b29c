"""EXCHANGE_BROKER_HA_INFO and RESET_MASTER_FLUSH_OFFSET over a real socket, at a master and at a slave."""

from pathlib import Path

import pytest

from broker.config.broker_config import BrokerRole
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from tests.broker.rig import running_broker

COMES = ExchangeHAInfoRequestHeader(
    master_ha_address="127.0.0.1:1", master_flush_offset=7, master_address="127.0.0.1:2"
)
FLUSHED = ResetMasterFlushOffsetHeader(master_flush_offset=4096)


@pytest.mark.code(RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.RESET_MASTER_FLUSH_OFFSET)
async def test_a_master_says_where_it_is_and_where_its_log_ended_when_it_started(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send(b"later than the start")
        answer = await client.ask_well(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader())
        found = answer.header(ExchangeHAInfoResponseHeader)
        assert (found.master_address, found.master_ha_address) == (broker.address, broker.registration.ha_address)
        assert found.master_flush_offset == 0
        # A master follows no other.
        await client.ask_well(RequestCode.EXCHANGE_BROKER_HA_INFO, COMES)
        await client.ask_well(RequestCode.RESET_MASTER_FLUSH_OFFSET, FLUSHED)
        assert broker.following is None
        await client.send(b"still a master")


@pytest.mark.parametrize("is_acting_enabled", [False, True])
async def test_a_slave_follows_who_says_to_come_if_it_acts_for_masters(tmp_path: Path, is_acting_enabled: bool) -> None:
    roles = {"broker_role": BrokerRole.SLAVE, "broker_id": 1, "enable_slave_acting_master": is_acting_enabled}
    async with running_broker(tmp_path, **roles) as (broker, client):
        answer = await client.ask_well(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader())
        assert answer.header(ExchangeHAInfoResponseHeader).master_ha_address is None
        answer = await client.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, COMES)
        assert answer.code == ResponseCode.SUCCESS
        assert broker.following is not None
        assert broker.following.follower.master_address == ("127.0.0.1:1" if is_acting_enabled else "")
        await client.ask_well(RequestCode.RESET_MASTER_FLUSH_OFFSET, FLUSHED)
