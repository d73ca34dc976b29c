"""What requests about lite topics need from access control: the group and, where a topic is named, the parent."""

from pathlib import Path

import pytest

from sprocket.remoting.bodies.auth import AclInfo, UserInfo
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from tests.broker.lite.rig import GROUP, LIGHT, PARENT, pop_header
from tests.broker.processor.test_auth_admin import GUARDED, ROOT, Asker, acl, askers, rule, user
from tests.broker.rig import create

_USER = Credentials("reader", "secret of reader")
_SUB = [f"Group:{GROUP}", f"Topic:{PARENT}"]
_CHANGE = LiteSubscriptionDTO(LiteSubscriptionAction.PARTIAL_ADD, "c1", GROUP, PARENT, ["s1"])
# Code, header, body, the action, and the resources that are needed.
_REQUESTS: list[tuple[RequestCode, Header | None, bytes, str, list[str]]] = [
    (RequestCode.POP_LITE_MESSAGE, pop_header("c1"), b"", "Sub", _SUB),
    (
        RequestCode.LITE_SUBSCRIPTION_CTL, None, dumps(LiteSubscriptionCtlRequestBody([_CHANGE])), "Sub", _SUB,
    ),
    (RequestCode.GET_PARENT_TOPIC_INFO, GetParentTopicInfoRequestHeader(topic=PARENT), b"", "Get", _SUB[1:]),
    (
        RequestCode.GET_LITE_TOPIC_INFO, GetLiteTopicInfoRequestHeader(parent_topic=PARENT, lite_topic="s1"), b"",
        "Get", _SUB[1:],
    ),
    (
        RequestCode.GET_LITE_CLIENT_INFO,
        GetLiteClientInfoRequestHeader(parent_topic=PARENT, group=GROUP, client_id="c1"), b"", "Get", _SUB,
    ),
    (RequestCode.GET_LITE_GROUP_INFO, GetLiteGroupInfoRequestHeader(group=GROUP), b"", "Get", _SUB[:1]),
    (RequestCode.TRIGGER_LITE_DISPATCH, TriggerLiteDispatchRequestHeader(group=GROUP), b"", "Update", _SUB[:1]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "header", "body", "action", "resources"), _REQUESTS, ids=[request[0].name for request in _REQUESTS]
)
async def test_each_resource_that_a_request_names_is_needed(
    tmp_path: Path, code: RequestCode, header: Header | None, body: bytes, action: str, resources: list[str]
) -> None:
    async with askers(tmp_path, ROOT, _USER, store=LIGHT, **GUARDED) as (_, (admin, reader)):
        await _prepare(admin)
        for missing in resources:
            rules = [rule(resource, action) for resource in resources if resource != missing]
            await _allow(admin, rules)
            assert (await reader.ask(code, header, body)).code == ResponseCode.NO_PERMISSION, missing
        await _allow(admin, [rule(resource, action) for resource in resources])
        assert (await reader.ask(code, header, body)).code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT)


async def test_the_tables_of_the_broker_need_the_cluster(tmp_path: Path) -> None:
    async with askers(tmp_path, ROOT, _USER, store=LIGHT, **GUARDED) as (_, (admin, reader)):
        await _prepare(admin)
        await _allow(admin, [rule(resource, "Get") for resource in _SUB])
        refused = await reader.ask(RequestCode.GET_BROKER_LITE_INFO)
        assert refused.code == ResponseCode.NO_PERMISSION
        await admin.well(RequestCode.GET_BROKER_LITE_INFO)


async def _prepare(admin: Asker) -> None:
    await admin.well(RequestCode.AUTH_CREATE_USER, user("reader"), UserInfo(None, _USER.secret_key))
    attributes = "+message.type=LITE"
    await admin.well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(PARENT, attributes=attributes))
    await admin.well(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
        {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}},
    )  # fmt: skip


async def _allow(admin: Asker, rules: list[object]) -> None:
    """Give the reader exactly these rights."""
    await admin.ask(RequestCode.AUTH_DELETE_ACL, acl("reader"))
    rules = [*rules, rule("Topic:Unused", "Get")]
    await admin.well(RequestCode.AUTH_CREATE_ACL, acl("reader"), AclInfo("User:reader", rules))  # type: ignore[arg-type]
