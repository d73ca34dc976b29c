"""Sessions over both ways: two programs talk, asking for the next message acknowledges, there is one reader."""

import asyncio

import pytest

import sprocket
from sprocket import BrokerRefused, ClientClosed, ClientError, IllegalArgument, SessionLost
from tests.client.lite.rig import WAIT_S, Channels


@pytest.mark.timeout(120)
async def test_two_programs_talk(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):

        async def agent() -> None:
            session = mq.session("agent-7", topic=channels.topic, group=channels.shared, peer="user-7")
            async with session:
                async for message in session:
                    if message.body == b"bye":
                        return
                    await session.send(message.body.upper(), tags="answer")

        working = asyncio.create_task(agent())
        answers = []
        async with mq.session("user-7", topic=channels.topic, group=channels.exclusive, peer="agent-7") as session:
            for question in (b"one", b"two"):
                await session.send(question)
                answer = await anext(session)
                answers.append((answer.body, answer.tags))
            await session.send(b"bye")
        await working
        assert answers == [(b"ONE", "answer"), (b"TWO", "answer")]


@pytest.mark.timeout(120)
async def test_asking_for_the_next_message_acknowledges_the_one_before(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):
        async with mq.session("chat", topic=channels.topic, group=channels.exclusive) as session:
            for number in range(4):
                await session.send(b"%d" % number)
            assert [(await anext(session)).body for _ in range(2)] == [b"0", b"1"]
        async with mq.session("chat", topic=channels.topic, group=channels.exclusive) as session:
            received = await session.receive(wait_s=WAIT_S)
            # The context ended without an error, so the last message was acknowledged too.
            assert received is not None and received.body == b"2"
            assert session.id == "chat" and "chat" in repr(session)


@pytest.mark.timeout(120)
async def test_an_error_rejects_the_message_in_work_and_nothing_overtakes_it(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):
        with pytest.raises(ValueError, match="spoilt"):
            async with mq.session("chat", topic=channels.topic, group=channels.exclusive) as session:
                for number in range(3):
                    await session.send(b"%d" % number)
                async for message in session:
                    if message.body == b"1":
                        raise ValueError("spoilt")
        async with mq.session("chat", topic=channels.topic, group=channels.exclusive) as session:
            again = [await anext(session) for _ in range(2)]
        assert [message.body for message in again] == [b"1", b"2"]
        assert again[0].reconsume_times == 1


@pytest.mark.timeout(120)
async def test_a_cancelled_wait_takes_no_message(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):
        session = mq.session("chat", topic=channels.topic, group=channels.exclusive)
        assert await session.receive(wait_s=0.05) is None
        await session.send(b"after")
        assert (await anext(session)).body == b"after"


@pytest.mark.timeout(120)
async def test_a_session_that_is_opened_elsewhere_is_lost_and_can_be_taken_back(
    address: str, channels: Channels
) -> None:
    async with sprocket.connect(address) as one, sprocket.connect(address) as other, asyncio.timeout(WAIT_S):
        mine = one.session("chat", topic=channels.topic, group=channels.exclusive)
        theirs = other.session("chat", topic=channels.topic, group=channels.exclusive)
        for session in (mine, theirs):
            await session.send(b"who reads this has the session")
            await anext(session)
            await session.receive(wait_s=0.1)  # acknowledges it
        with pytest.raises(SessionLost, match="has opened session chat"):
            await mine.receive()
        await mine.send(b"and this")
        await anext(mine)
        with pytest.raises(SessionLost):
            await theirs.receive()
        await theirs.send(b"to the reader")
        assert (await anext(mine)).body == b"to the reader"


@pytest.mark.timeout(120)
async def test_many_sessions_share_connections_and_a_slow_one_delays_no_other(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):
        names = [f"chat-{number}" for number in range(40)]
        sessions = [mq.session(name, topic=channels.topic, group=channels.exclusive) for name in names]
        held = await asyncio.gather(*(session.send(session.id.encode()) for session in sessions))
        assert len(held) == 40
        # Nobody acknowledges: each of them has its first message all the same.
        first = await asyncio.gather(*(anext(session) for session in sessions))
        assert [message.body.decode() for message in first] == names


@pytest.mark.timeout(120)
async def test_wrong_uses_are_clear_errors(address: str, channels: Channels) -> None:
    async with sprocket.connect(address) as mq, asyncio.timeout(WAIT_S):
        with pytest.raises(IllegalArgument, match="id 'a:b' is no lite topic"):
            mq.session("a:b")
        with pytest.raises(IllegalArgument, match="peer"):
            mq.session("a", peer="b c")
        unbound = mq.session("chat", topic=channels.topic, group="nobody-made-this")
        with pytest.raises(BrokerRefused, match=r"lite\.bind\.topic"):
            await anext(unbound)
        session = mq.session("chat", topic=channels.topic, group=channels.exclusive)
        waiting = asyncio.create_task(anext(session))
        await asyncio.sleep(0.05)
        with pytest.raises(ClientError, match="another task waits"):
            await anext(session)
        twin = mq.session("chat", topic=channels.topic, group=channels.exclusive)
        with pytest.raises(ClientError, match="reads session chat already"):
            await anext(twin)
        await session.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(ClientClosed):
            await session.send(b"x")


@pytest.mark.timeout(120)
async def test_the_end_of_the_connection_ends_the_iteration(address: str, channels: Channels) -> None:
    async with asyncio.timeout(WAIT_S):
        async with sprocket.connect(address) as mq:
            session = mq.session("chat", topic=channels.topic, group=channels.exclusive)
            assert await session.receive(wait_s=0.1) is None
            waiting = asyncio.create_task(anext(session))
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await waiting
