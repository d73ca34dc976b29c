"""Both configurations over real connections."""

import json
from pathlib import Path

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.config.configuration_file import ConfigurationFile
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from sprocket_cli.server.server_config import namesrv_configuration
from tests.in_process import WAIT_S
from tests.namesrv.site import Site


@pytest.mark.code(
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
)
async def test_kv_config(site: Site) -> None:
    get = GetKVConfigRequestHeader(namespace="n", key="k")
    of_namespace = GetKVListByNamespaceRequestHeader(namespace="n")
    missing = await site.ask(RequestCode.GET_KV_CONFIG, get, expect=ResponseCode.QUERY_NOT_FOUND)
    assert missing.remark == "No config item, Namespace: n Key: k"
    await site.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, of_namespace, expect=ResponseCode.QUERY_NOT_FOUND)
    await site.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key="k", value="v"))
    assert (await site.ask(RequestCode.GET_KV_CONFIG, get)).ext_fields == {"value": "v"}
    assert json.loads((await site.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, of_namespace)).body) == {"table": {"k": "v"}}
    await site.ask(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="n", key="k"))
    assert json.loads(site.kv_config_path.read_bytes()) == {"configTable": {"n": {}}}


@pytest.mark.code(RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG)
async def test_its_own_configuration_is_shown_and_updated_by_an_allowlist(site: Site) -> None:
    await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=b"supportActingMaster=true\n")
    text = (await site.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "supportActingMaster=true\n" in text
    assert "scanNotActiveBrokerInterval=5000\n" in text
    for key in ("kvConfigPath", "listenPort", "configBlackList", "rocketmqHome", "unheardOf"):
        content = f"orderMessageEnable=true\n{key}=1\n".encode()
        refused = await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=content, expect=ResponseCode.NO_PERMISSION)
        assert key in (refused.remark or "")
    content = b"orderMessageEnable=true\nenableTopicList=perhaps\n"
    bad = await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=content, expect=ResponseCode.INVALID_PARAMETER)
    assert "enableTopicList" in (bad.remark or "")
    assert not site.server.settings.current.order_message_enable


async def test_its_file_keeps_what_was_updated(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    content = f"# mine\nlistenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path / 'kv.json'}\n"
    file.write_text(content)
    for update, before in [(b"", "false"), (b"supportActingMaster=true\n", ""), (b"", "true")]:
        configuration = namesrv_configuration(file)
        server = NameServer(configuration.of(NamesrvConfig), file=ConfigurationFile.of(configuration))
        await server.start()
        client = RemotingClient()
        try:
            address = f"127.0.0.1:{server.port}"
            held = await client.invoke(address, RequestCode.GET_NAMESRV_CONFIG, None, timeout_s=WAIT_S)
            if not update:
                assert f"supportActingMaster={before}\n" in held.body.decode()
                continue
            file.chmod(0o440)
            refused = await client.invoke(address, RequestCode.UPDATE_NAMESRV_CONFIG, None, update, timeout_s=WAIT_S)
            assert refused.code == ResponseCode.SYSTEM_ERROR and "read-only" in (refused.remark or "")
            assert not server.settings.current.support_acting_master
            file.chmod(0o640)
            done = await client.invoke(address, RequestCode.UPDATE_NAMESRV_CONFIG, None, update, timeout_s=WAIT_S)
            assert (done.code, done.remark) == (ResponseCode.SUCCESS, None)
            assert server.settings.current.support_acting_master
        finally:
            await client.close()
            await server.stop()
    assert file.read_text() == content + "supportActingMaster=true\n"
