"""Outcome of a task that several others await."""

import asyncio
import gc

import pytest

from sprocket.common.cancellation import outcome_of


async def _fails() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    raise ValueError("planted")


async def test_the_error_of_a_task_whose_only_waiter_was_cancelled_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = asyncio.get_running_loop().create_task(_fails())
    waiter = asyncio.get_running_loop().create_task(outcome_of(shared, KeyError("ended")))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await asyncio.wait([shared])
    del shared, waiter
    gc.collect()
    assert not caplog.records


async def test_each_waiter_gets_the_error() -> None:
    shared = asyncio.get_running_loop().create_task(_fails())
    found = await asyncio.gather(*(outcome_of(shared, KeyError()) for _ in range(2)), return_exceptions=True)
    assert [repr(one) for one in found] == ["ValueError('planted')"] * 2
