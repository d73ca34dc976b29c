"""Whatever can be changed from outside, with hostile names and values: no file but tables, no key but those allowed.

Row 24 of the promises; what a configuration update may do is in tests/sprocket_cli/test_update_allowlist.py.
"""

import asyncio
from pathlib import Path

import pytest

from sprocket.common.config import properties
from sprocket.common.config.configuration import mutable_keys
from sprocket.common.config.rocketmq_keys import reference_keys
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    PutKVConfigRequestHeader,
)
from tests.broker.rig import create, running_broker
from tests.namesrv.site import site_at

NAMES = (
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\nb",
    "a\r\nlistenPort=1",
    "a\x00b",
    "$(reboot)",
    "`id`",
    "..",
    ".",
    "a;b",
    "%s%n",
    "ü" * 200,
    "x" * 300,
    "a b",
    "a\\b",
    "~",
    "*",
    "{}",
    "a@b@c",
    "\u2028",
    "\ud7ff",
)
VALUES = ("/etc/passwd", "a\nlistenPort=1", "true\nstorePathRootDir=/tmp", "99999999999999999999")
CONTAINER_CODES = (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER)


def files_of(folder: Path) -> set[str]:
    """All files and directories below and beside."""
    return {str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*")}


def queues_of(names: set[str]) -> set[str]:
    return {name for name in names if "consumequeue" in name}


async def test_names_of_topics_and_groups_make_no_files_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "inner" / "root"
    root.mkdir(parents=True)
    async with running_broker(root) as (_, client):
        before = files_of(root)
        for name in NAMES:
            answers = [
                await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create(name)),
                await client.ask(
                    RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders", attributes=f"+message.type={name},+{name}=x")
                ),
            ]
            assert all(answer.code != ResponseCode.SUCCESS for answer in answers if "/" in name or "\n" in name), name
            body = dumps(SubscriptionGroupConfig(group_name=name))
            group = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert group.code != ResponseCode.SUCCESS or not {"/", "\n", "\x00", "\\"} & set(name), name
        made = files_of(root) - before
        assert all(Path(name).parts[:2] == ("root", "store") for name in made), made
        assert not queues_of(made)
    # All tables are what they were written as.
    async with running_broker(root) as (_, client):
        await client.send()


@pytest.mark.parametrize("code", CONTAINER_CODES)
async def test_no_broker_is_started_or_stopped_from_outside(tmp_path: Path, code: RequestCode) -> None:
    async with running_broker(tmp_path) as (_, client):
        body = b"brokerName=x\nstorePathRootDir=/tmp/x\n"
        response: ReceivedResponse = await client.ask(code, None, body)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_every_key_over_the_wire(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        first = properties.parse((await client.ask_well(RequestCode.GET_BROKER_CONFIG)).body)
        keys = sorted({entry.key for entry in first} | set(reference_keys()))
        for key in keys:
            bodies = [f"{key}={value}".encode() for value in VALUES[1:3]]
            asked = [client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body) for body in bodies]
            answers = await asyncio.gather(*asked)
            assert all(answer.code != ResponseCode.SUCCESS for answer in answers), key
        after = properties.parse((await client.ask_well(RequestCode.GET_BROKER_CONFIG)).body)
        assert {entry.key: entry.value for entry in after} == {entry.key: entry.value for entry in first}
        assert set(mutable_keys(broker.config._configuration)) < set(keys)


async def test_the_name_servers_keys_and_tables(tmp_path: Path) -> None:
    async with site_at(tmp_path) as site:
        first = (await site.client.invoke(site.address, RequestCode.GET_NAMESRV_CONFIG)).body
        for key in sorted(
            {entry.key for entry in properties.parse(first)} | {"kvConfigPath", "configStorePath", "rocketmqHome"}
        ):
            for value in VALUES:
                body = f"{key}={value}".encode()
                answer = await site.client.invoke(site.address, RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
                assert answer.code != ResponseCode.SUCCESS, (key, value)
        assert (await site.client.invoke(site.address, RequestCode.GET_NAMESRV_CONFIG)).body == first
        for name in NAMES:
            put = PutKVConfigRequestHeader(namespace=name, key=name, value=name)
            await site.client.invoke(site.address, RequestCode.PUT_KV_CONFIG, put)
        assert {Path(name).name for name in files_of(tmp_path / "x")} <= {"kvConfig.json", "kvConfig.json.bak"}
    # Read back as they were written, each by its own name.
    async with site_at(tmp_path) as site:
        for name in NAMES:
            asked = GetKVConfigRequestHeader(namespace=name, key=name)
            found = await site.client.invoke(site.address, RequestCode.GET_KV_CONFIG, asked)
            assert found.ext_fields.get("value") == name
            gone = DeleteKVConfigRequestHeader(namespace=name, key=name)
            await site.client.invoke(site.address, RequestCode.DELETE_KV_CONFIG, gone)
