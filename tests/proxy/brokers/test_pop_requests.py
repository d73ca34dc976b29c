"""Requests that pop are those that every other request is made as, and no answer to one is lost."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.brokers.brokers import Brokers
from proxy.brokers.pop_requests import encoded_pop
from sprocket.client.errors import RemotingTimeout
from sprocket.common.clock import SystemClock
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.pop import PopMessageRequestHeader

_HEADER = PopMessageRequestHeader(
    consumer_group="group%d", topic="Orders", queue_id=-1, max_msg_nums=32, invisible_time=60_000, poll_time=20_000,
    init_mode=1, exp_type="TAG", exp="*",
)  # fmt: skip


@pytest.mark.parametrize("attempt_id", [None, "", 'a"quoted\\id', "percent%d%b", "语"])
@pytest.mark.parametrize(("kind", "expression"), [("TAG", "a%d || b"), ("SQL92", "a = '\"%b'"), (None, None)])
@pytest.mark.parametrize("order", [False, True])
def test_bytes_are_those_of_encode_request(
    attempt_id: str | None, kind: str | None, expression: str | None, order: bool
) -> None:
    for numbers in ((32, 60_000, 20_000), (1, 1 << 40, 0)):
        header = PopMessageRequestHeader(
            consumer_group="group%d", topic="Orders", queue_id=-1, max_msg_nums=numbers[0], invisible_time=numbers[1],
            poll_time=numbers[2], init_mode=1, exp_type=kind, exp=expression, order=order, attempt_id=attempt_id,
        )  # fmt: skip
        assert encoded_pop(header, 4711) == encode_request(RequestCode.POP_MESSAGE, 4711, header)


class _Channel:
    """Connection to a broker that holds a pop; `waiter` gets its answer."""

    def __init__(self, *, is_signing: bool) -> None:
        self.is_signing = is_signing
        self.waiter: Any = None
        self.sent: object = None

    def next_opaque(self) -> int:
        return 1

    def request_encoded(self, waiter: Any, code: int, opaque: int, prefix: bytes, *_: object) -> None:
        self.waiter, self.sent = waiter, prefix

    def request_for(self, waiter: Any, code: int, header: object, *, timeout_s: float) -> None:
        self.waiter, self.sent = waiter, header


def _pop(channel: _Channel, unread: Callable[[ReceivedResponse], None]) -> "asyncio.Task[ReceivedResponse]":
    instance: Any = SimpleNamespace(
        master_address=lambda _: "127.0.0.1:1", remoting=SimpleNamespace(open_channel=lambda _: channel),
        clock=SystemClock(),
    )  # fmt: skip
    return asyncio.create_task(Brokers(instance).pop("broker-a", _HEADER, 20.0, unread))


@pytest.mark.parametrize("is_signing", [False, True])
async def test_answer_reaches_the_caller(is_signing: bool) -> None:
    channel, unread = _Channel(is_signing=is_signing), list[ReceivedResponse]()
    popping = _pop(channel, unread.append)
    await asyncio.sleep(0)
    # A signed request is encoded with its signature, by the connection.
    assert channel.sent == (_HEADER if is_signing else encoded_pop(_HEADER, 1))
    channel.waiter.set_result(answer := ReceivedResponse(code=0))
    assert await popping is answer and not unread


async def test_answer_to_a_caller_that_has_left_is_unread() -> None:
    channel, unread = _Channel(is_signing=False), list[ReceivedResponse]()
    popping = _pop(channel, unread.append)
    await asyncio.sleep(0)
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    assert not channel.waiter.done(), "the broker may still answer"
    channel.waiter.set_result(answer := ReceivedResponse(code=0))
    assert unread == [answer]


async def test_answer_in_the_turn_in_which_the_caller_leaves_is_unread() -> None:
    channel, unread = _Channel(is_signing=False), list[ReceivedResponse]()
    popping = _pop(channel, unread.append)
    await asyncio.sleep(0)
    channel.waiter.set_result(answer := ReceivedResponse(code=0))
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    assert unread == [answer]


async def test_failure_reaches_the_caller_that_waits_and_nobody_else() -> None:
    channel, unread = _Channel(is_signing=False), list[ReceivedResponse]()
    popping = _pop(channel, unread.append)
    await asyncio.sleep(0)
    channel.waiter.set_exception(RemotingTimeout("late"))
    with pytest.raises(RemotingTimeout):
        await popping
    left = _pop(channel, unread.append)
    await asyncio.sleep(0)
    left.cancel()
    channel.waiter.set_exception(RemotingTimeout("late"))
    with pytest.raises(asyncio.CancelledError):
        await left
    assert not unread
