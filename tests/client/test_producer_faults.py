"""The producer against servers that fail on purpose."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sprocket import (
    BrokerRefused,
    ClientClosed,
    ClientError,
    ClientSettings,
    IllegalMessage,
    Message,
    MessageQueue,
    NameServerUnreachable,
    Producer,
    SendFailed,
    SendResult,
    SendSettings,
    SendStatus,
    TopicNotFound,
)
from sprocket.client.send.queue_choice import RoundRobin
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from sprocket.remoting.tls.settings import TlsSettings
from tests.client.fake_cluster import FakeBroker, FakeNameServer, client_tasks, hang_up, refuse, topic_data
from tests.clock import ManualClock
from tests.waiting import until

A = MessageQueue("T", "a", 0)


@pytest.fixture
async def name_server() -> AsyncIterator[FakeNameServer]:
    async with FakeNameServer() as server:
        yield server


@pytest.fixture
async def brokers(name_server: FakeNameServer) -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    async with FakeBroker("a") as a, FakeBroker("b") as b:
        name_server.topics["T"] = topic_data(a, b)
        yield a, b


Two = tuple[FakeBroker, FakeBroker]


def producer(name_server: FakeNameServer, **settings: object) -> Producer:
    """A producer that begins at the first queue, so that tests know which broker is asked first."""
    made = Producer("g", name_server.address, settings=SendSettings(**settings))  # type: ignore[arg-type]
    made._sender._round_robin = RoundRobin()
    return made


@pytest.mark.parametrize("failure", [hang_up, refuse(ResponseCode.SYSTEM_BUSY), refuse(ResponseCode.SYSTEM_ERROR)])
async def test_message_goes_to_another_broker(name_server: FakeNameServer, brokers: Two, failure: object) -> None:
    async with producer(name_server) as sender:
        last = [await sender.send(Message("T", b"x")) for _ in range(4)][-1]
        # It is the turn of the one that did not take the last.
        other, failing = sorted(brokers, key=lambda broker: broker.name != last.queue.broker_name)
        failing.script.append(failure)  # type: ignore[arg-type]
        result = await sender.send(Message("T", b"moved"))
        assert not failing.script
        assert result.queue.broker_name == other.name
        assert other.taken[-1].body == b"moved"
        # A broker that has failed is avoided for a while.
        after = [await sender.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in after} == {other.name}


async def test_a_message_over_a_quota_waits_and_is_then_sent(name_server: FakeNameServer, brokers: Two) -> None:
    def limited(request: Request[Any]) -> Response:
        return Response(ResponseCode.FLOW_CONTROL, "quota", {"retryAfterMillis": "5"})

    async with producer(name_server, retry_times_when_send_failed=1) as sender:
        for broker in brokers:
            broker.script.extend([limited] * 3)
        result = await sender.send(Message("T", b"x"))
        assert result.status is SendStatus.SEND_OK
        # The time of the send bounds the wait, and no broker is avoided for a quota.
        for broker in brokers:
            broker.script.extend([limited] * 1000)
        with pytest.raises(SendFailed, match="FLOW_CONTROL") as failed:
            await sender.send(Message("T", b"x"), timeout_s=0.05)
        assert set(failed.value.brokers) == {"a", "b"}


async def test_every_broker_may_fail_once_more_than_the_retries(name_server: FakeNameServer, brokers: Two) -> None:
    a, b = brokers
    for broker in brokers:
        broker.script.extend([refuse(ResponseCode.SYSTEM_BUSY)] * 3)
    async with producer(name_server) as sender:
        text = r"after 3 attempts .* on a \(2 attempts\), b \(1 attempt\); .*SYSTEM_BUSY.*scripted"
        with pytest.raises(SendFailed, match=text) as failure:
            await sender.send(Message("T", b"x"))
        assert isinstance(failure.value.__cause__, BrokerRefused)
        assert len(a.script) + len(b.script) == 3


async def test_bad_messages_harm_none_of_those_sent_with_them(name_server: FakeNameServer, brokers: Two) -> None:
    """Also when a message was spoiled after it was made, and when a frame is written past the producer's checks."""
    async with producer(name_server, retry_times_when_send_failed=0) as sender:
        await asyncio.gather(*(sender.send(Message("T", b"warm")) for _ in range(4)))
        with pytest.raises(IllegalMessage, match=r"body is a str; pass bytes, as in text\.encode\(\)"):
            Message("T", "text")  # type: ignore[arg-type]
        spoiled = Message("T", b"x")
        spoiled.body = "text"  # type: ignore[assignment]
        outcomes = await asyncio.gather(
            *(sender.send(Message("T", b"%d" % number)) for number in range(6)),
            sender.send(spoiled),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [*[SendResult] * 6, IllegalMessage]
        channel = await sender._instance.remoting.channel(brokers[0].address)
        good = [channel.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), b"{}", timeout_s=30.0)]
        for header, body in (
            ({}, "text"), ({}, 5), ({"a": object()}, b""), ({"a": "\ud800"}, b""),
            ({}, memoryview(bytes(16)).cast("I")),
        ):  # fmt: skip
            try:
                good.append(channel.request(RequestCode.HEART_BEAT, header, body, timeout_s=30.0))  # type: ignore[arg-type]
            except ClientError as error:
                assert "encoded" in str(error) or "body" in str(error)
        with pytest.raises(ClientError, match="body"):
            channel.notify(RequestCode.HEART_BEAT, {}, "text")  # type: ignore[arg-type]
        answers = await asyncio.gather(*good)
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2  # the memoryview has a form
        assert not channel._pending.waiting
        assert not channel.is_closed


async def test_answer_that_no_other_broker_would_change_is_raised_at_once(
    name_server: FakeNameServer, brokers: Two
) -> None:
    a, b = brokers
    a.script.append(refuse(ResponseCode.MESSAGE_ILLEGAL))
    async with producer(name_server) as sender:
        with pytest.raises(BrokerRefused, match="MESSAGE_ILLEGAL") as refusal:
            await sender.send(Message("T", b"x"))
    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert not b.taken


async def test_topic_that_a_broker_does_not_know_refreshes_the_route(name_server: FakeNameServer, brokers: Two) -> None:
    a, b = brokers
    name_server.topics["T"] = topic_data(a)
    async with producer(name_server) as sender:
        await sender.send(Message("T", b"first"))
        name_server.topics["T"] = topic_data(b)
        a.script.append(refuse(ResponseCode.TOPIC_NOT_EXIST))
        result = await sender.send(Message("T", b"second"))
    assert result.queue.broker_name == "b"
    assert name_server.asked == ["T", "T"]


async def test_chosen_queue_is_tried_once(name_server: FakeNameServer, brokers: Two) -> None:
    a, b = brokers
    a.script.append(hang_up)
    async with producer(name_server) as sender:
        with pytest.raises(SendFailed, match=r"after 1 attempt in .* on a \(1 attempt\);"):
            await sender.send(Message("T", b"x"), queue=A)
    assert not a.taken
    assert not b.taken


async def test_broker_that_comes_back_in_time_gets_the_message(name_server: FakeNameServer) -> None:
    """Nothing can be sent while there is nobody to connect to, so that uses up no retry."""
    async with FakeBroker("a") as first:
        port = int(first.address.rpartition(":")[2])
        name_server.topics["T"] = topic_data(first)
    async with producer(name_server, send_msg_timeout_s=30.0) as sender:
        sending = asyncio.create_task(sender.send(Message("T", b"x")))
        await until(lambda: name_server.asked.count("T") >= 3)  # it has failed and asks for the route again
        async with FakeBroker("a", port) as second:
            assert (await sending).queue == A
            assert [request.body for request in second.taken] == [b"x"]


async def test_send_ends_at_its_deadline(name_server: FakeNameServer, brokers: Two) -> None:
    for broker in brokers:
        broker.script.extend([lambda request: None] * 9)
    async with producer(name_server) as sender:
        with pytest.raises(SendFailed, match="no response in time"):
            await sender.send(Message("T", b"x"), timeout_s=0.2)


async def test_name_server_that_says_nothing_is_passed(name_server: FakeNameServer, brokers: Two) -> None:
    async with FakeNameServer() as silent:
        silent.is_silent = True
        settings = ClientSettings(namesrv=f"{silent.address};{name_server.address}", api_timeout_s=1.0)
        async with Producer("g", client=settings) as sender:
            await sender.send(Message("T", b"x"))
            # From now on the one that answered is asked first.
            assert await sender.queues("T")
            assert len(silent.asked) == 1


async def test_routes_live_on_without_a_name_server(name_server: FakeNameServer, brokers: Two) -> None:
    settings = ClientSettings(namesrv=name_server.address, poll_name_server_interval_s=0.02, api_timeout_s=1.0)
    async with Producer("g", client=settings) as sender:
        await sender.send(Message("T", b"first"))
        name_server.is_silent = True
        asked = len(name_server.asked)
        await until(lambda: len(name_server.asked) > asked + 1)
        await sender.send(Message("T", b"second"))


async def test_no_name_server_at_all() -> None:
    async with Producer("g", "127.0.0.1:1;127.0.0.1:2") as sender:
        with pytest.raises(NameServerUnreachable, match=r"none of .*127\.0\.0\.1:1;127\.0\.0\.1:2 answered; check"):
            await sender.send(Message("T", b"x"))


async def test_topic_without_a_route_says_what_to_do(name_server: FakeNameServer) -> None:
    async with producer(name_server) as sender:
        with pytest.raises(TopicNotFound, match=r"sprocket topic create Nowhere.*autoCreateTopicEnable"):
            await sender.send(Message("Nowhere", b"x"))


async def test_unknown_topic_goes_where_topics_are_created(name_server: FakeNameServer, brokers: Two) -> None:
    name_server.topics["TBW102"] = topic_data(*brokers, queues=8)
    async with producer(name_server) as sender:
        assert (await sender.send(Message("New", b"x"))).queue.topic == "New"
        assert len(await sender.queues("New")) == 8  # at most 4 on each broker


async def test_results_of_a_stream_come_in_order_across_a_failure(name_server: FakeNameServer, brokers: Two) -> None:
    a, _ = brokers
    a.script.extend([a.accept] * 5 + [hang_up])
    bodies = [b"%d" % number for number in range(200)]
    async with producer(name_server) as sender:
        results = [result async for result in sender.send_many((Message("T", body) for body in bodies), window=16)]
    places = {(request.header.broker_name, offset): request.body
              for broker in brokers for offset, request in enumerate(broker.taken)}  # fmt: skip
    assert [places[result.queue.broker_name, result.queue_offset] for result in results] == bodies


async def test_stream_takes_no_more_than_its_window(name_server: FakeNameServer, brokers: Two) -> None:
    released = asyncio.Event()
    a, _ = brokers
    name_server.topics["T"] = topic_data(a)
    waiting = 0

    async def hold(request: object) -> object:
        nonlocal waiting
        waiting += 1
        await released.wait()
        return a.accept(request)  # type: ignore[arg-type]

    taken = 0

    def source() -> object:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield Message("T", b"x")

    async with producer(name_server, send_msg_timeout_s=60.0) as sender:
        await sender.send(Message("T", b"x"))
        a.script.extend([hold] * 100)  # type: ignore[list-item]
        stream = sender.send_many(source(), window=10)  # type: ignore[arg-type]
        first = asyncio.ensure_future(anext(stream))
        await until(lambda: waiting >= 10)
        assert taken <= 11
        released.set()
        await first
        assert len([result async for result in stream]) == 99


async def test_cancelled_send_gives_its_room_to_the_next(name_server: FakeNameServer, brokers: Two) -> None:
    a, _ = brokers
    name_server.topics["T"] = topic_data(a)
    async with producer(name_server, max_outstanding=1, send_msg_timeout_s=60.0) as sender:
        await sender.send(Message("T", b"x"))
        a.script.append(lambda request: None)
        stuck = asyncio.create_task(sender.send(Message("T", b"stuck")))
        await until(lambda: not a.script)
        waiting = asyncio.create_task(sender.send(Message("T", b"next")))
        await asyncio.sleep(0)
        assert len(a.taken) == 1
        stuck.cancel()
        assert (await waiting).queue_offset == 1


async def test_oneway_asks_for_no_answer(name_server: FakeNameServer, brokers: Two) -> None:
    a, _ = brokers
    async with producer(name_server) as sender:
        await sender.send_oneway(Message("T", b"x"), queue=A)
        await until(lambda: len(a.taken) == 1)
    assert a.taken[0].is_oneway


async def test_brokers_hear_of_the_producer_and_of_its_end(name_server: FakeNameServer, brokers: Two) -> None:
    a, _ = brokers
    async with producer(name_server) as sender:
        await sender.send(Message("T", b"x"), queue=A)
        await until(lambda: bool(a.heartbeats))
        assert b'"groupName":"g"' in a.heartbeats[0]
    assert [header.producer_group for header in a.unregistered] == ["g"]
    with pytest.raises(ClientClosed, match="async with"):
        await sender.send(Message("T", b"x"))


async def test_send_that_waits_for_a_route_is_told_that_its_producer_was_closed(name_server: FakeNameServer) -> None:
    name_server.is_silent = True
    async with producer(name_server) as sender:
        sending = asyncio.create_task(sender.send(Message("T", b"x")))
        await until(lambda: bool(name_server.asked))
    with pytest.raises(ClientError):
        await sending


async def test_send_that_waits_for_a_connection_is_told_that_its_producer_was_closed() -> None:
    accepted = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    tls = TlsSettings.for_client()  # whose handshake nobody answers
    async with server, Producer("g", client=ClientSettings(namesrv=address, tls=tls)) as sender:
        sending = asyncio.create_task(sender.send(Message("T", b"x")))
        await accepted.wait()
        await sender.close()
        with pytest.raises(ClientError):
            await sending


async def test_newest_route_says_where_a_broker_is(name_server: FakeNameServer) -> None:
    async with FakeBroker("a") as old, FakeBroker("a") as new:
        name_server.topics["T"] = name_server.topics["U"] = topic_data(old)
        async with producer(name_server, retry_times_when_send_failed=0) as sender:
            await sender.send(Message("T", b"x"))
            await sender.send(Message("U", b"x"))
            # The broker is elsewhere now; the route of U says so later than that of T.
            name_server.topics["T"] = topic_data(new)
            old.script.extend([hang_up] * 100)
            await old.__aexit__()
            await sender.send(Message("T", b"moved"))
        assert [request.body for request in new.taken] == [b"moved"]


async def test_closing_that_is_cancelled_leaves_nothing_behind(name_server: FakeNameServer, brokers: Two) -> None:
    before = asyncio.all_tasks()
    sender = producer(name_server)
    await sender.__aenter__()
    await sender.send(Message("T", b"x"))
    closing = asyncio.create_task(sender.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert not client_tasks(before)


async def test_route_that_means_nothing_does_not_end_the_polling(name_server: FakeNameServer, brokers: Two) -> None:
    settings = ClientSettings(namesrv=name_server.address, poll_name_server_interval_s=0.01)
    async with Producer("g", client=settings) as sender:
        await sender.send(Message("T", b"x"))
        wrong = name_server.topics["T"] = topic_data(brokers[0])
        wrong.order_topic_conf = "a:many"  # what an operator may write into the KV configuration
        asked = len(name_server.asked)
        await until(lambda: len(name_server.asked) > asked + 2)


async def test_new_master_of_a_failed_group_is_used_at_once(name_server: FakeNameServer, brokers: Two) -> None:
    """The name server learns of it some time after the failure."""
    a, b = brokers
    clock = ManualClock()  # it stands still, so no avoidance ends by itself
    async with FakeBroker("a") as new, Producer("g", name_server.address, clock=clock) as sender:
        await until_sent(sender, a, b)
        clock.advance(1.0)
        a.script.append(hang_up)
        while a.script:
            await sender.send(Message("T", b"x"))
        a.script.extend([hang_up] * 100)
        clock.advance(1.0)
        name_server.topics["T"] = topic_data(new, b)
        await until_sent(sender, new, b)
    assert len(a.script) == 100


async def test_send_to_the_old_master_that_fails_late_says_nothing_about_the_new_one(
    name_server: FakeNameServer, brokers: Two
) -> None:
    a, b = brokers
    clock, may_fail = ManualClock(), asyncio.Event()
    client = ClientSettings(namesrv=name_server.address, poll_name_server_interval_s=0.02)

    async def hang_up_late(request: Request[Any]) -> None:
        await may_fail.wait()
        hang_up(request)

    async with FakeBroker("a") as new, Producer("g", client=client, clock=clock) as sender:
        await until_sent(sender, a, b)
        clock.advance(1.0)
        a.script.append(hang_up_late)
        sends = [asyncio.create_task(sender.send(Message("T", b"x"))) for _ in range(2)]
        await until(lambda: not a.script)
        clock.advance(1.0)
        name_server.topics["T"] = topic_data(new, b)
        asked = len(name_server.asked)
        await until(lambda: len(name_server.asked) >= asked + 2)  # the first answer has come
        may_fail.set()
        await asyncio.gather(*sends)
        await until_sent(sender, new, b)


async def until_sent(sender: Producer, *brokers: FakeBroker) -> None:
    """Send until each of `brokers` has taken a further message."""
    before = [len(broker.taken) for broker in brokers]
    while any(len(broker.taken) == count for broker, count in zip(brokers, before, strict=True)):
        await sender.send(Message("T", b"x"))
        await asyncio.sleep(0.005)
