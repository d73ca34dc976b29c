"""The remoting port itself: routes, lists of members, signatures, what is refused, and what one client may take."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acl.auth.settings import AuthSettings
from proxy.remoting import forwarder
from sprocket.client.send.send_request import batched
from sprocket.remoting.bodies.client import ConsumerConnection, ConsumerData, HeartbeatData, SubscriptionData
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
)
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.headers.offset import GetMaxOffsetRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from sprocket.remoting.routes import Action, Resource, Route
from sprocket.testing import Broker
from tests.bad_texts import bad_between_good, bad_requests
from tests.proxy.rig import Rig, consumer_settings, create_group, create_topic, running
from tests.proxy.test_access import folder as folder
from tests.waiting import until

code = RequestCode


class Caller:
    """A remoting client of a proxy, request by request."""

    def __init__(self, rig: Rig, *, port: int | None = None, credentials: Credentials | None = None) -> None:
        self.address = f"127.0.0.1:{port or rig.proxy.remoting.listeners[0].port}"
        self.client = RemotingClient(credentials=credentials)

    async def ask(self, number: int, header: Any = None, body: bytes = b"") -> ReceivedResponse:
        return await self.client.invoke(self.address, number, header, body)

    async def route(self, topic: str) -> ReceivedResponse:
        return await self.ask(code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))

    async def heartbeat(self, client_id: str, group: str, topic: str) -> ReceivedResponse:
        consumer = ConsumerData(group, subscription_data_set=[SubscriptionData(topic)])
        body = dumps(HeartbeatData(client_id, consumer_data_set=[consumer]))
        return await self.ask(code.HEART_BEAT, HeartbeatRequestHeader(), body)

    async def members(self, group: str) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self.ask(code.GET_CONSUMER_LIST_BY_GROUP, header)
        return list(json.loads(answer.body)["consumerIdList"]) if answer.code == 0 else []

    def send_fields(self, topic: str, *, broker: str | None = None, properties: str = "") -> dict[str, str]:
        fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
        fields |= {"i": properties, "j": "0", "k": "false", "m": "false"}
        return fields if broker is None else {**fields, "n": broker}


@pytest.fixture
async def caller(rig: Rig) -> AsyncIterator[Caller]:
    made = Caller(rig)
    yield made
    await made.client.close()


async def test_route_names_the_proxy_for_every_broker(rig: Rig, caller: Caller, topic: str) -> None:
    answer = await caller.route(topic)
    (found,) = loads(answer.body, TopicRouteData).broker_datas
    assert set(found.broker_addrs.values()) == {caller.address}


async def test_route_of_an_unknown_topic(caller: Caller) -> None:
    assert (await caller.route("NobodyHasIt")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_retry_topic_is_created_at_the_first_heartbeat_of_its_group(
    rig: Rig, caller: Caller, topic: str, broker: Broker
) -> None:
    # Brokers get no heartbeat that would create it.  A route without queues would stop orderly consumers for good.
    group = await create_group(broker, retry_queue_nums=3)
    assert (await caller.route(f"%RETRY%{group}")).code == ResponseCode.TOPIC_NOT_EXIST
    await caller.heartbeat("one", group, topic)
    async with asyncio.timeout(10):
        while (answer := await caller.route(f"%RETRY%{group}")).code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            await asyncio.sleep(0.02)
    found = loads(answer.body, TopicRouteData)
    assert [(one.write_queue_nums, one.read_queue_nums) for one in found.queue_datas] == [(3, 3)]
    assert set(found.broker_datas[0].broker_addrs.values()) == {caller.address}


async def test_named_listeners_have_their_own_address(broker: Broker, topic: str) -> None:
    listeners = '[{"name": "out", "port": 0, "advertise": "mq.example:999", "protocol": "remoting"}]'
    async with running(broker, listeners=listeners, remoting_access_addr="10.0.0.9") as rig:
        assert len(rig.proxy.listeners) == 1
        inner, outer = rig.proxy.remoting.listeners
        for listener, expected in ((inner, f"10.0.0.9:{inner.port}"), (outer, "mq.example:999")):
            caller = Caller(rig, port=listener.port)
            (found,) = loads((await caller.route(topic)).body, TopicRouteData).broker_datas
            assert set(found.broker_addrs.values()) == {expected}
            await caller.client.close()


async def test_port_can_be_turned_off(broker: Broker) -> None:
    async with running(broker, remoting_listen_port=-1) as rig:
        assert rig.proxy.remoting.listeners == []


async def test_codes_that_are_not_served_are_named(caller: Caller) -> None:
    answer = await caller.ask(code.UPDATE_BROKER_CONFIG)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and "UPDATE_BROKER_CONFIG" in (answer.remark or "")


async def test_broker_that_is_not_there(caller: Caller, topic: str) -> None:
    answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic, broker="nobody"), b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR and "nobody" in (answer.remark or "")


async def test_a_lite_topic_is_for_topics_of_its_type(broker: Broker, caller: Caller, topic: str) -> None:
    parent, properties = await create_topic(broker, "LITE"), "__LITE_TOPIC\x01chat\x02"
    for name, text, is_taken in ((parent, properties, True), (parent, "", False), (topic, properties, False)):
        for number, fields in (
            (code.SEND_MESSAGE_V2, caller.send_fields(name, properties=text)),
            (code.SEND_MESSAGE, {"topic": name, "properties": text, "producerGroup": "g", "defaultTopic": "TBW102",
                                 "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0",
                                 "flag": "0"}),
        ):  # fmt: skip
            answer = await caller.ask(number, fields, b"x")
            expected = ResponseCode.SUCCESS if is_taken else ResponseCode.MESSAGE_ILLEGAL
            assert answer.code == expected, (name, text, answer.remark)


async def test_a_batch_has_no_lite_topics(broker: Broker, topic: str) -> None:
    async with running(broker, enable_topic_message_type_check=False) as rig:
        caller = Caller(rig)
        properties = "__LITE_TOPIC\x01chat\x02"
        fields = caller.send_fields(topic) | {"m": "true"}
        answer = await caller.ask(code.SEND_BATCH_MESSAGE, fields, batched(b"x", properties, 0))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "lite topics" in (answer.remark or "")
        await caller.client.close()


async def test_a_priority_is_for_topics_of_its_type(broker: Broker, caller: Caller, topic: str) -> None:
    priority_topic = await create_topic(broker, "PRIORITY", 4)
    properties = "_SYS_MSG_PRIORITY_\x013\x02"
    answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(priority_topic, properties=properties), b"x")
    assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "3")
    for name, text in ((topic, properties), (priority_topic, "")):
        answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(name, properties=text), b"x")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "type is" in (answer.remark or "")


async def test_client_that_names_no_broker_is_served_if_there_is_one(caller: Caller, topic: str) -> None:
    # Clients before 4.9.3, and most in other languages, do not name it.
    answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic), b"x")
    assert answer.code == ResponseCode.SUCCESS
    queue_id = int(answer.ext_fields["queueId"])
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    assert (await caller.ask(code.GET_MAX_OFFSET, header)).ext_fields["offset"] == "1"


async def test_client_that_names_no_broker_is_refused_if_there_are_several(
    caller: Caller, rig: Rig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_masters", lambda data: ["a", "b"])
    answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic), b"x")
    assert answer.code == ResponseCode.VERSION_NOT_SUPPORTED and "bname" in (answer.remark or "")


async def test_members_of_both_protocols_are_one_group(rig: Rig, caller: Caller, topic: str) -> None:
    grpc = rig.client("grpc-one")
    stream, _ = await grpc.report(consumer_settings(topic, "both"))
    assert (await caller.heartbeat("remoting-one", "both", topic)).code == ResponseCode.SUCCESS
    assert await caller.members("both") == ["grpc-one", "remoting-one"]
    header = GetConsumerConnectionListRequestHeader(consumer_group="both")
    listed = loads((await caller.ask(code.GET_CONSUMER_CONNECTION_LIST, header)).body, ConsumerConnection)
    assert {one.client_id: one.language for one in listed.connection_set} == {
        "grpc-one": "PYTHON", "remoting-one": "PYTHON",
    }  # fmt: skip
    assert topic in listed.subscription_table
    # A connection that closes takes its members with it, and so does a client that ends.
    other = Caller(rig)
    await other.heartbeat("remoting-two", "both", topic)
    await caller.client.close()
    assert await other.members("both") == ["grpc-one", "remoting-two"]
    rig.proxy.clients.remove("grpc-one")
    assert await other.members("both") == ["remoting-two"]
    stream.cancel()
    await other.client.close()


async def test_members_are_told_of_changes(rig: Rig, caller: Caller, topic: str) -> None:
    channel = await caller.client.channel(caller.address)
    await caller.heartbeat("first", "told", topic)
    other = Caller(rig)
    before = caller.client.counters.frames
    await other.heartbeat("second", "told", topic)
    await until(lambda: caller.client.counters.frames > before)
    assert not channel.is_closed
    await other.client.close()


async def test_unknown_group_has_no_members(caller: Caller) -> None:
    header = GetConsumerListByGroupRequestHeader(consumer_group="nobody")
    assert (await caller.ask(code.GET_CONSUMER_LIST_BY_GROUP, header)).code == ResponseCode.SYSTEM_ERROR
    asked = GetConsumerConnectionListRequestHeader(consumer_group="nobody")
    answer = await caller.ask(code.GET_CONSUMER_CONNECTION_LIST, asked)
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_pull_without_a_subscription_needs_a_heartbeat(rig: Rig, caller: Caller, topic: str) -> None:
    header = PullMessageRequestHeader(
        consumer_group="pullers", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=0,
        commit_offset=0, suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    assert (await caller.ask(code.PULL_MESSAGE, header)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    await caller.heartbeat("one", "pullers", "Another")
    assert (await caller.ask(code.PULL_MESSAGE, header)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await caller.heartbeat("one", "pullers", topic)
    assert (await caller.ask(code.PULL_MESSAGE, header)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("text", ["x", "1e3", "9" * 30])
async def test_numbers_that_are_none_are_refused(caller: Caller, topic: str, text: str) -> None:
    fields = {"topic": topic, "consumerGroup": "g", "sysFlag": "4", "suspendTimeoutMillis": text, "bname": "x"}
    answer = await caller.ask(code.PULL_MESSAGE, fields)
    assert answer.code != ResponseCode.SUCCESS


async def test_one_connection_may_have_so_many_requests_outstanding(
    rig: Rig, caller: Caller, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "MAX_WAITING", 3)
    await caller.heartbeat("one", "greedy", topic)
    header = PullMessageRequestHeader(
        consumer_group="greedy", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=2,
        commit_offset=0, suspend_timeout_millis=2000, sub_version=0,
    )  # fmt: skip
    answers = await asyncio.gather(*(caller.ask(code.PULL_MESSAGE, header) for _ in range(5)))
    assert sorted(answer.code for answer in answers).count(ResponseCode.SYSTEM_BUSY) == 2
    # What is answered no longer counts.
    assert (await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic), b"x")).code == ResponseCode.SUCCESS


async def test_bodies_of_all_sends_are_bounded(broker: Broker, topic: str) -> None:
    async with running(broker, grpc_max_in_flight_size=1000) as rig:
        caller = Caller(rig)
        fields = caller.send_fields(topic)
        answers = await asyncio.gather(*(caller.ask(code.SEND_MESSAGE_V2, fields, b"x" * 900) for _ in range(4)))
        assert [answer.code for answer in answers].count(ResponseCode.SYSTEM_BUSY) == 3
        assert (await caller.ask(code.SEND_MESSAGE_V2, fields, b"x" * 900)).code == ResponseCode.SUCCESS
        await caller.client.close()


async def test_answer_that_never_comes_is_a_timeout(caller: Caller, broker: Broker, topic: str) -> None:
    assert (await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic), b"x")).code == ResponseCode.SUCCESS
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
        channel = await caller.client.channel(caller.address)
        answer = await channel.request(code.GET_MAX_OFFSET, header, timeout_s=10)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "no response in time" in (answer.remark or "")
    finally:
        os.kill(broker.pid, signal.SIGCONT)


# Signatures


@pytest.fixture
async def guarded(broker: Broker, folder: Path) -> AsyncIterator[Rig]:
    auth = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    async with running(broker, auth=auth, auth_config_path=str(folder)) as rig:
        yield rig


async def test_requests_must_be_signed(guarded: Rig, topic: str) -> None:
    for credentials, is_served in (
        (None, False), (Credentials("root", "wrong"), False), (Credentials("nobody", "nothing"), False),
        (Credentials("reader", "readers"), False), (Credentials("root", "secret"), True),
    ):  # fmt: skip
        caller = Caller(guarded, credentials=credentials)
        answer = await caller.ask(code.SEND_MESSAGE_V2, caller.send_fields(topic), b"x")
        expected = ResponseCode.SUCCESS if is_served else ResponseCode.NO_PERMISSION
        assert answer.code == expected, answer.remark
        await caller.client.close()


async def test_message_that_is_sent_back_must_be_readable_by_the_sender(guarded: Rig, broker: Broker) -> None:
    # The offset of a message in the log tells nothing of its topic: a reader must not get others' messages with it.
    hidden, open_topic = "HiddenTopic", await create_topic(broker)
    broker.create_topic(hidden)
    root, reader = Caller(guarded, credentials=Credentials("root", "secret")), None
    try:
        reader = Caller(guarded, credentials=Credentials("reader", "readers"))
        for topic, expected in ((hidden, ResponseCode.NO_PERMISSION), (open_topic, ResponseCode.SUCCESS)):
            sent = await root.ask(code.SEND_MESSAGE_V2, root.send_fields(topic), b"x")
            offset = int(sent.ext_fields["msgId"][-16:], 16)
            header = ConsumerSendMsgBackRequestHeader(
                offset=offset, group="group-back", delay_level=0, origin_topic=open_topic
            )
            answer = await reader.ask(code.CONSUMER_SEND_MSG_BACK, header)
            assert answer.code == expected, answer.remark
    finally:
        await root.client.close()
        if reader is not None:
            await reader.client.close()


async def test_transaction_of_another_topic_cannot_be_ended(guarded: Rig, broker: Broker) -> None:
    topic = await create_topic(broker, "TRANSACTION")
    root = Caller(guarded, credentials=Credentials("root", "secret"))
    reader = Caller(guarded, credentials=Credentials("reader", "readers"))
    properties = "TRAN_MSG\x01true\x02PGROUP\x01g\x02"
    fields = root.send_fields(topic, properties=properties) | {"f": "4"}
    sent = await root.ask(code.SEND_MESSAGE_V2, fields, b"x")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    header = EndTransactionRequestHeader(
        producer_group="g", tran_state_table_offset=int(sent.ext_fields["queueOffset"]),
        commit_log_offset=int(sent.ext_fields["msgId"][-16:], 16), commit_or_rollback=8, msg_id="x",
    )  # fmt: skip
    refused = await reader.ask(code.END_TRANSACTION, header)
    assert refused.code == ResponseCode.NO_PERMISSION
    ended = await root.ask(code.END_TRANSACTION, header)
    assert ended.code == ResponseCode.SUCCESS, ended.remark
    await root.client.close()
    await reader.client.close()


async def test_bad_texts_harm_no_other_request(rig: Rig, topic: str) -> None:
    headers: dict[RequestCode, type[Header]] = {
        code.SEND_MESSAGE: SendMessageRequestHeader,
        code.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
        code.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackRequestHeader,
        code.END_TRANSACTION: EndTransactionRequestHeader,
        code.PULL_MESSAGE: PullMessageRequestHeader,
        code.GET_MAX_OFFSET: GetMaxOffsetRequestHeader,
        code.GET_CONSUMER_LIST_BY_GROUP: GetConsumerListByGroupRequestHeader,
        code.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoRequestHeader,
    }
    routes = [Route(*one, lambda request: None, Resource.NONE, Action.NONE) for one in headers.items()]
    requests = bad_requests(routes, {"topic": topic, "b": topic, "k": "false"})
    good = {"topic": topic.encode()}
    port = rig.proxy.remoting.listeners[0].port
    assert await bad_between_good(port, requests, code.GET_ROUTEINFO_BY_TOPIC, good) > 300
