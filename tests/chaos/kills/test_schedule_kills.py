"""Schedules while their broker dies by SIGKILL, or its group gets another master: each fire time is in the log once."""

import asyncio
import random
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.schedule import CatchUp, Schedule
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.schedule import SetScheduleRequestHeader
from tests.broker.controller.rig import group
from tests.chaos.load import PROPERTIES, QUEUES, TOPIC, create_topic, pages_of
from tests.chaos.nursery import ChaosBroker, Nursery

SCHEDULES = 60
PERIOD_MS = 1000


async def begin(client: RemotingClient, address: str) -> None:
    await create_topic(client, address, TOPIC, QUEUES)
    for number in range(SCHEDULES):
        wanted = Schedule(
            name=f"s{number}", topic=TOPIC, body=b"go", every_millis=PERIOD_MS, catch_up=CatchUp.ALL,
            jitter_millis=PERIOD_MS,
        )  # fmt: skip
        header = SetScheduleRequestHeader(topic=TOPIC)
        answer = await client.invoke(address, RequestCode.SET_SCHEDULE, header, dumps(wanted), timeout_s=30)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def fired(client: RemotingClient, address: str) -> Counter[tuple[str, int]]:
    """How often each fire time of each schedule is in the log."""
    found: Counter[tuple[str, int]] = Counter()
    for queue_id in range(QUEUES):
        async for page in pages_of(client, address, TOPIC, queue_id, 0):
            for message in decode_records(bytes(page), MessageQueue(TOPIC, "b", queue_id)):
                found[message.properties["SCHEDULE_NAME"], int(message.properties["SCHEDULE_TIME_MS"])] += 1
    return found


async def fired_often(client: RemotingClient, address: str, times: int) -> Counter[tuple[str, int]]:
    """As `fired`, once all schedules have fired, and that more often than `times` on average."""
    async with asyncio.timeout(60):
        while True:
            found = await fired(client, address)
            if len({name for name, _ in found}) == SCHEDULES and len(found) > times * SCHEDULES:
                return found
            await asyncio.sleep(0.2)


def problems(found: Counter[tuple[str, int]]) -> list[str]:
    """Say which fire times are in the log twice, and which are missing before the last."""
    wrong = [f"{name} fired {count} times at {at}" for (name, at), count in found.items() if count != 1]
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for name, at in sorted(found):
        by_name[name].append(at)
    for name, times in by_name.items():
        wrong += [f"{name} lacks {a + PERIOD_MS}" for a, b in pairwise(times) if b - a != PERIOD_MS]
    return wrong


async def test_a_broker_that_is_killed_fires_each_time_once(nursery: Nursery, tmp_path: Path) -> None:
    dice, client = random.Random(5), RemotingClient()
    with ChaosBroker(nursery, tmp_path, PROPERTIES) as broker:
        for number in range(6):
            # A message that is in the log, and not yet in memory, is what a kill must not double.
            broker.start(f"schedules.appended=kill@{dice.randrange(1, 100)}" if number % 2 else "")
            if number == 0:
                await begin(client, broker.address)
            await asyncio.sleep(dice.uniform(0.3, 1.2))
            broker.kill()
        broker.start()
        assert problems(await fired_often(client, broker.address, 3)) == []
        await client.close()
        assert broker.stop() == 0


async def test_masters_that_follow_one_another_fire_each_time_once(tmp_path: Path) -> None:
    client = RemotingClient()
    async with group(tmp_path, store={"in_sync_replicas": 2}) as it:
        await it.elect(1)
        await begin(client, it[1].broker.address)
        for number in range(6):
            await asyncio.sleep(0.4)
            await it.elect(1 + (number + 1) % 2)
        await it.in_step()
        assert problems(await fired_often(client, it[it.master].broker.address, 2)) == []
    await client.close()
