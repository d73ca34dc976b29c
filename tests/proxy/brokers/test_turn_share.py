"""Work of many calls that is ready at once is spread over turns of the event loop, in order."""

import asyncio

from proxy.brokers.turn_share import TurnShare


async def test_work_is_spread_over_turns_in_order() -> None:
    share, loop = TurnShare(100), asyncio.get_running_loop()
    turn, done = 0, list[tuple[int, int]]()

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    async def work(number: int) -> None:
        await share.take(40)
        done.append((turn, number))

    count()
    await asyncio.wait_for(asyncio.gather(*(work(number) for number in range(30))), 20)
    assert [number for _, number in done] == list(range(30))
    in_turn = [sum(at == each for at, _ in done) for each in {at for at, _ in done}]
    assert len(in_turn) >= 10 and max(in_turn) <= 3
    # An idle share lets the next one pass at once.
    await asyncio.sleep(0.01)
    before = turn
    await share.take(1000)
    assert turn == before


async def test_work_of_a_call_that_ended_is_passed_over() -> None:
    share = TurnShare(10)
    first, gone, stays = (asyncio.ensure_future(share.take(10)) for _ in range(3))
    await asyncio.sleep(0)
    assert first.done() and not gone.done()
    gone.cancel()
    await asyncio.wait_for(stays, 20)
    assert gone.cancelled()
