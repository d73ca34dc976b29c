"""Operators try a message on one consumer, and see its threads: at the proxy's port, and through a broker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.consumption import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.testing import Broker
from tests.proxy.rig import GrpcClient, Rig, consumer_settings, running


class Tool:
    """An operator's tool, at one address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = RemotingClient()

    async def ask(self, code: int, header: Any) -> ReceivedResponse:
        return await self._client.invoke(self._address, code, header, timeout_s=10)

    async def verify(self, group: str, client_id: str, message_id: str) -> ReceivedResponse:
        header = ConsumeMessageDirectlyRequestHeader(consumer_group=group, client_id=client_id, msg_id=message_id)
        return await self.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

    async def threads(self, group: str, client_id: str, *, jstack: bool = True) -> ReceivedResponse:
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        return await self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
async def tool(rig: Rig) -> AsyncIterator[Tool]:
    made = Tool(f"127.0.0.1:{rig.proxy.remoting.listeners[0].port}")
    yield made
    await made.close()


async def _consumer(rig: Rig, topic: str, group: str) -> tuple[GrpcClient, Any]:
    client = rig.client(f"consumer-of-{group}")
    stream, _ = await client.report(consumer_settings(topic, group))
    return client, stream


async def _answering(stream: Any, code: "wire.Code" = wire.OK) -> wire.TelemetryCommand:
    """Answer one command as a client does; return the command."""
    command: wire.TelemetryCommand = await stream.read()
    answer = wire.TelemetryCommand(status=wire.Status(code=code))
    if command.WhichOneof("command") == "verify_message_command":
        answer.verify_message_result.nonce = command.verify_message_command.nonce
    else:
        answer.thread_stack_trace.nonce = command.print_thread_stack_trace_command.nonce
        answer.thread_stack_trace.thread_stack_trace = "main: waiting"
    await stream.write(answer)
    return command


async def _message_id(rig: Rig, topic: str) -> str:
    """Send a message; return the id that says where it is."""
    answer = await rig.client().send(topic, "try me")
    offset = 0
    async with broker_tool(rig) as tool:
        for queue_id in range(2):
            header = PullMessageRequestHeader(
                consumer_group="look", topic=topic, queue_id=queue_id, queue_offset=0, max_msg_nums=1, sys_flag=4,
                commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
            )  # fmt: skip
            found = await tool.ask(RequestCode.PULL_MESSAGE, header)
            if found.code == 0:
                offset = int.from_bytes(found.body[28:36], "big")
    assert answer.status.code == wire.OK
    host, _, port = rig.broker.address.rpartition(":")
    return (bytes(map(int, host.split("."))) + int(port).to_bytes(4, "big") + offset.to_bytes(8, "big")).hex().upper()


@contextlib.asynccontextmanager
async def broker_tool(rig: Rig) -> AsyncIterator[Tool]:
    tool = Tool(rig.broker.address)
    yield tool
    await tool.close()


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (wire.OK, CMResult.SUCCESS), (wire.FAILED_TO_CONSUME_MESSAGE, CMResult.LATER),
        (wire.MESSAGE_CORRUPTED, CMResult.RETURN_NULL),
    ],
)  # fmt: skip
async def test_consumer_tries_a_message(rig: Rig, tool: Tool, topic: str, code: Any, result: CMResult) -> None:
    _, stream = await _consumer(rig, topic, "group-try")
    message_id = await _message_id(rig, topic)
    answering = asyncio.ensure_future(_answering(stream, code))
    found = await tool.verify("group-try", "consumer-of-group-try", message_id)
    assert found.code == ResponseCode.SUCCESS, found.remark
    assert loads(found.body, ConsumeMessageDirectlyResult).consume_result is result
    message = (await answering).verify_message_command.message
    assert message.body == b"try me" and message.topic.name == topic
    stream.cancel()


async def test_threads_of_a_consumer(rig: Rig, tool: Tool, topic: str) -> None:
    _, stream = await _consumer(rig, topic, "group-threads")
    answering = asyncio.ensure_future(_answering(stream))
    found = await tool.threads("group-threads", "consumer-of-group-threads")
    info = loads(found.body, ConsumerRunningInfo[str])
    assert info.jstack == "main: waiting" and [one.topic for one in info.subscription_set] == [topic]
    await answering
    # Without the threads nothing is asked.
    plain = await tool.threads("group-threads", "consumer-of-group-threads", jstack=False)
    assert loads(plain.body, ConsumerRunningInfo[str]).jstack is None
    stream.cancel()


async def test_client_that_does_not_answer(broker: Broker, topic: str) -> None:
    async with running(broker, grpc_proxy_relay_request_timeout_in_seconds=1) as rig:
        tool = Tool(f"127.0.0.1:{rig.proxy.remoting.listeners[0].port}")
        _, stream = await _consumer(rig, topic, "group-mute")
        found = await tool.threads("group-mute", "consumer-of-group-mute")
        assert found.code == ResponseCode.SYSTEM_BUSY
        # Its answer comes too late, and another client's answer is none: neither breaks the stream.
        command = await stream.read()
        late = wire.TelemetryCommand(status=wire.Status(code=wire.OK))
        late.thread_stack_trace.nonce = command.print_thread_stack_trace_command.nonce
        await stream.write(late)
        again = asyncio.ensure_future(tool.threads("group-mute", "consumer-of-group-mute"))
        await _answering(stream)
        assert (await again).code == ResponseCode.SUCCESS
        stream.cancel()
        await tool.close()


async def test_message_and_consumer_that_are_not_there(rig: Rig, tool: Tool, topic: str) -> None:
    _, stream = await _consumer(rig, topic, "group-none")
    elsewhere = "0A000001" + "00002A9F" + "0" * 16
    for message_id in ("", "xyz", "00", elsewhere):
        found = await tool.verify("group-none", "consumer-of-group-none", message_id)
        assert found.code == ResponseCode.SYSTEM_ERROR and "is on no broker" in (found.remark or "")
    found = await tool.threads("group-none", "another")
    assert found.code == ResponseCode.SYSTEM_ERROR and "not online" in (found.remark or "")
    stream.cancel()


async def test_broker_reaches_a_consumer_through_the_proxy(broker: Broker, topic: str) -> None:
    async with running(broker, register_consumers_at_brokers=True) as rig:
        _, stream = await _consumer(rig, topic, "group-known")
        message_id = await _message_id(rig, topic)
        async with broker_tool(rig) as tool:
            header = GetConsumerConnectionListRequestHeader(consumer_group="group-known")
            async with asyncio.timeout(10):
                while (found := await tool.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).code:
                    await asyncio.sleep(0.1)
            proxy_id = rig.proxy.brokers.instance.client_id
            assert proxy_id.encode() in found.body
            for ask in (tool.threads("group-known", proxy_id), tool.verify("group-known", proxy_id, message_id)):
                answering = asyncio.ensure_future(_answering(stream))
                answer = await ask
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                await answering
            # A group without clients is the proxy's no more.
            rig.proxy.clients.remove("consumer-of-group-known")
            async with asyncio.timeout(10):
                while not (await tool.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).code:
                    await asyncio.sleep(0.1)
        stream.cancel()
