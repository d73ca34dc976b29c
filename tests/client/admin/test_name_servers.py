"""Requests of the administration client to all name servers."""

from pathlib import Path

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.client.admin.admin_client import ORDER_TOPIC_NAMESPACE, AdminClient, AdminError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import GetKVConfigRequestHeader
from tests.compat.ports import free_port


@pytest.fixture
def nobody() -> str:
    """Return an address at which nobody listens."""
    return f"127.0.0.1:{free_port()}"


async def started(root: Path, name: str) -> tuple[NameServer, str]:
    server = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=root / f"{name}.json"))
    await server.start()
    return server, f"127.0.0.1:{server.port}"


async def test_all_are_asked_and_each_outcome_is_kept(tmp_path: Path, nobody: str) -> None:
    (one, one_at), (other, other_at) = await started(tmp_path, "one"), await started(tmp_path, "other")
    key = GetKVConfigRequestHeader(namespace=ORDER_TOPIC_NAMESPACE, key="Orders")
    async with AdminClient([other_at]) as admin:
        await admin.set_order_conf("Orders", {"broker-a": 4}, whole=True)
    async with AdminClient([nobody, one_at, other_at]) as admin:
        outcomes = await admin.ask_name_servers(RequestCode.GET_KV_CONFIG, key)
    assert list(outcomes) == [nobody, one_at, other_at]
    silent, empty, full = outcomes.values()
    assert isinstance(silent, AdminError) and silent.code is None and nobody in str(silent)
    assert isinstance(empty, AdminError) and empty.code == ResponseCode.QUERY_NOT_FOUND
    assert not isinstance(full, AdminError) and full.ext_fields["value"] == "broker-a:4"
    await one.stop()
    await other.stop()


async def test_a_change_reaches_the_others_if_one_does_not_respond(tmp_path: Path, nobody: str) -> None:
    server, address = await started(tmp_path, "one")
    async with AdminClient([nobody, address]) as admin:
        with pytest.raises(AdminError, match=nobody):
            await admin.set_order_conf("Orders", {"broker-a": 4}, whole=True)
    async with AdminClient([address]) as admin:
        key = GetKVConfigRequestHeader(namespace=ORDER_TOPIC_NAMESPACE, key="Orders")
        assert (await admin.ask(address, RequestCode.GET_KV_CONFIG, key)).ext_fields["value"] == "broker-a:4"
    await server.stop()
