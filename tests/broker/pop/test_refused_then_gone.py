"""A message that a consumer refuses is redelivered, whenever the connection of that consumer breaks."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.remoting.codes import ResponseCode
from tests.broker.pop.rig import ack, change, messages_of, pop, popped
from tests.broker.rig import TestClient, running_broker

_REFUSED = b"refused"
_INVISIBLE_MS = 3_000
_REFUSAL_MS = 1_000
_LIMIT_S = 20.0


@dataclass(frozen=True)
class _Death:
    """When the first consumer dies, s after its refusal, and in which state."""

    after_s: float
    holds_pops: int = 0  # that wait at the broker when it dies
    refuses_again: bool = False  # the successor refuses with the old handle, as if the answer had been lost
    away_s: float = 0.1  # until the successor connects
    merges: bool = False  # enablePopBufferMerge


# The refused message is redelivered about 2 s after the refusal.
_DEATHS = [
    _Death(0.0),
    _Death(0.0, refuses_again=True),
    _Death(0.0, refuses_again=True, merges=True),
    _Death(0.0, away_s=6.0),
    _Death(0.5, holds_pops=2),
    _Death(0.5, holds_pops=2, away_s=6.0, merges=True),
    _Death(1.0, refuses_again=True),
    _Death(1.9, holds_pops=1),
    _Death(1.9, holds_pops=2, merges=True),
    _Death(2.0, holds_pops=2),
    _Death(2.1, holds_pops=1),
    _Death(2.5, holds_pops=1),
]


async def _redelivered(root: Path, death: _Death) -> bytes:
    """Let a consumer refuse a message and die; return what its successor gets."""
    async with running_broker(root, enable_pop_buffer_merge=death.merges, pop_from_retry_probability=20) as (
        broker,
        one,
    ):
        for body in (b"done", _REFUSED, b"done"):
            await one.send(body)
        for message in await popped(one, invisible_time=_INVISIBLE_MS):
            if message.body == _REFUSED:
                refused = message
                assert (await change(one, message, _REFUSAL_MS)).code == ResponseCode.SUCCESS
            else:
                assert (await ack(one, message)).code == ResponseCode.SUCCESS
        waiting = [
            asyncio.create_task(pop(one, invisible_time=_INVISIBLE_MS, poll_time=20_000))
            for _ in range(death.holds_pops)
        ]
        await asyncio.sleep(death.after_s)
        await one.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(death.away_s)
        two = TestClient(f"127.0.0.1:{broker.port}")
        try:
            if death.refuses_again:
                assert (await change(two, refused, _REFUSAL_MS)).code == ResponseCode.SUCCESS
            async with asyncio.timeout(_LIMIT_S):
                while True:
                    answer = await pop(two, invisible_time=_INVISIBLE_MS, poll_time=5_000)
                    if answer.code == ResponseCode.SUCCESS:
                        return messages_of(answer)[0].body
        finally:
            await two.close()


@pytest.mark.parametrize("group", range(3))
async def test_refused_message_is_redelivered_whenever_its_consumer_dies(tmp_path: Path, group: int) -> None:
    deaths = _DEATHS[group::3]
    found = await asyncio.gather(*(_redelivered(tmp_path / str(at), death) for at, death in enumerate(deaths)))
    assert found == [_REFUSED] * len(deaths)
