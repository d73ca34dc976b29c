import asyncio

from broker.periodic import Periodic
from tests.waiting import until


async def test_work_is_done_again_and_again_until_it_is_stopped() -> None:
    done: list[int] = []
    periodic = Periodic("test", 0.001, lambda: done.append(1))
    periodic.start()
    await until(lambda: len(done) >= 3)
    await periodic.stop()
    count = len(done)
    await asyncio.sleep(0.02)
    assert len(done) == count


async def test_error_does_not_end_it() -> None:
    calls: list[int] = []

    async def fail() -> None:
        calls.append(1)
        raise RuntimeError("again")

    periodic = Periodic("test", 0.001, fail)
    periodic.start()
    await until(lambda: len(calls) >= 3)
    await periodic.stop()


async def test_one_run_at_a_time_and_stop_waits_for_it() -> None:
    running = finished = 0
    gate = asyncio.Event()

    async def work() -> None:
        nonlocal running, finished
        running += 1
        await gate.wait()
        finished += 1

    periodic = Periodic("test", 0.001, work)
    periodic.start()
    await until(lambda: running)
    await asyncio.sleep(0.02)
    assert running == 1
    stopping = asyncio.create_task(periodic.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done()
    gate.set()
    await stopping
    assert finished == 1


async def test_a_period_that_changes_counts_from_the_next_pause() -> None:
    done: list[int] = []
    period_s = 0.001
    periodic = Periodic("test", lambda: period_s, lambda: done.append(1))
    periodic.start()
    await until(lambda: len(done) >= 3)
    period_s = 3600.0
    await asyncio.sleep(0.05)
    count = len(done)
    await asyncio.sleep(0.05)
    assert len(done) == count
    await periodic.stop()
