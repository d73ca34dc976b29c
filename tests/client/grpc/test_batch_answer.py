"""Answers to a batch: RocketMQ's proxy has one entry for all messages, ours one for each."""

import pytest

import sprocket
from sprocket import Message, SendFailed
from sprocket.client.errors import BrokerRefused
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.client.grpc.fake_proxy import FakeProxy, route

_OK = wire.Status(code=wire.OK)


def _entry(offset: int, code: int = wire.OK) -> wire.SendResultEntry:
    return wire.SendResultEntry(status=wire.Status(code=code), message_id=f"id-{offset}", offset=offset)


async def _sent(entries: list[wire.SendResultEntry]) -> str:
    answer = wire.SendMessageResponse(status=_OK, entries=entries)
    fake = FakeProxy({"QueryRoute": route, "SendMessage": lambda request: answer})
    async with fake.running(), sprocket.connect(f"grpc://127.0.0.1:{fake.port}") as mq:
        batch = [Message("Orders", b"%d" % number) for number in range(3)]
        result = await mq.producer().send_batch(batch)
        assert result.queue_offset == 7
        return result.message_id


async def test_one_entry_stands_for_all_messages() -> None:
    ids = (await _sent([_entry(7)])).split(",")
    assert len(set(ids)) == 3 and "id-7" not in ids


async def test_each_entry_stands_for_its_message() -> None:
    assert await _sent([_entry(7), _entry(8), _entry(9)]) == "id-7,id-8,id-9"


async def test_one_entry_that_was_not_stored_is_no_success() -> None:
    with pytest.raises((BrokerRefused, SendFailed)):
        await _sent([_entry(7, wire.MESSAGE_BODY_TOO_LARGE)])


async def test_another_number_of_entries_is_no_success() -> None:
    with pytest.raises((BrokerRefused, SendFailed)):
        await _sent([_entry(7), _entry(8)])
