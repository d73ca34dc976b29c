"""Tasks of handlers end with their connection, and not all in one turn of the loop."""

import asyncio
from itertools import pairwise

from sprocket.remoting.flow.handler_tasks import HandlerTasks
from sprocket.remoting.flow.turn import Turn

MAX_IN_A_TURN = 64


async def test_many_tasks_are_cancelled_some_in_each_turn() -> None:
    loop = asyncio.get_running_loop()
    tasks, turn = HandlerTasks(loop), Turn(loop)
    begun = ended = 0

    async def answer() -> None:
        nonlocal begun, ended
        begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    async def wait(handler: asyncio.Future[None]) -> None:
        await handler

    for _ in range(200):
        handler = loop.create_task(answer())
        tasks.add(wait(handler), handler)
    while begun < 200:
        await asyncio.sleep(0)
    tasks.cancel_in_turns(turn)
    counts = [ended]
    async with asyncio.timeout(60):
        while counts[-1] < 200:
            await asyncio.sleep(0)
            counts.append(ended)
    assert max(after - before for before, after in pairwise(counts)) <= MAX_IN_A_TURN


async def test_a_handler_that_has_not_begun_is_closed_with_its_task() -> None:
    loop = asyncio.get_running_loop()
    tasks = HandlerTasks(loop)

    async def answer() -> None:
        raise AssertionError("it began")

    async def wait() -> None:
        await handler

    handler = answer()
    tasks.add(wait(), handler)
    tasks.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert handler.cr_frame is None
