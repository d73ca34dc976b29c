"""The stop of a broker: what clients still get, and the order in which its services end."""

import asyncio
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.pending import ConnectionLost
from tests.broker.insides import services_of
from tests.broker.pop.rig import pop
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker
from tests.waiting import until


async def test_each_held_request_is_answered_once_and_the_next_one_ends_with_its_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        pull = PullMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=1, max_msg_nums=32, sys_flag=4 | 2,
            commit_offset=0, suspend_timeout_millis=60_000, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        answers: list[list[int]] = []

        async def ask_again_and_again(one: TestClient, *, pops: bool) -> None:
            answers.append(own := [])
            with pytest.raises(ConnectionLost, match="closed the connection"):
                while True:
                    if pops:
                        answer = await pop(one, queue_id=1, poll_time=60_000, born_time=broker.clock.wall_ms())
                    else:
                        answer = await one.ask(RequestCode.PULL_MESSAGE, pull)
                    own.append(answer.code)

        clients = [TestClient(broker.address) for _ in range(40)]
        async with asyncio.TaskGroup() as tasks:
            for number, one in enumerate(clients):
                tasks.create_task(ask_again_and_again(one, pops=number < 30))
            await until(lambda: (len(broker.pop.held), len(broker.held)) == (30, 10))
            await broker.stop()
        assert sorted(answers) == [[ResponseCode.PULL_NOT_FOUND]] * 10 + [[ResponseCode.POLLING_TIMEOUT]] * 30
        for one in clients:
            await one.close()


async def test_services_answer_what_they_hold_before_any_of_them_stops_and_stop_within_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as (broker, _):
        loop = asyncio.get_running_loop()
        of_term = [one for one in services_of(broker) if one not in broker.process.services]
        answered: list[object] = []
        stopped: list[object] = []
        turns: list[int] = []  # in which a service stopped
        turn = 0

        def count_turn() -> None:
            nonlocal turn
            turn += 1
            if not turns or turn < turns[-1] + 10:
                loop.call_soon(count_turn)

        def answer_held(service: object, steps: Generator[None, None, None]) -> Generator[None, None, None]:
            assert not stopped
            answered.append(service)
            return steps

        def stop(service: object, stops: object) -> None:
            assert callable(stops)
            stops()
            if service in of_term:
                stopped.append(service)
                turns.append(turn)

        for one in of_term:
            held, ends = one.answer_held, one.stop
            monkeypatch.setattr(one, "answer_held", lambda one=one, held=held: answer_held(one, held()))
            monkeypatch.setattr(one, "stop", partial(stop, one, ends))
        loop.call_soon(count_turn)
        await broker.stop()
        assert answered == stopped == of_term[::-1]
        assert len(set(turns)) == 1
