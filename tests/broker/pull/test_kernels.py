"""The kernel of pulls gives what the handler gives: responses, offsets and counts."""

import asyncio
import random
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.pull import pull_frames
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from tests.broker.hot_path import hot_path, records
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.pull_targets import (
    COLD,
    ENGINES,
    Listener,
    Twin,
    compare_pulls,
    pull_header,
    pull_of,
    pull_twins,
)
from tests.tiers import seeds

engines = pytest.mark.parametrize(
    "is_native",
    [pytest.param(True, marks=pytest.mark.skipif(True not in ENGINES, reason="the engine is not built"))],
    ids=["native"],
)


def frame(serialization: int = JSON, opaque: int = 1, code: int = 11, **changes: Any) -> bytes:
    return encode_request(code, opaque, pull_header(**changes), serialization=serialization)


def served_by_kernel(twin: Twin, pieces: list[bytes]) -> int:
    """Return how many pulls the kernel served."""
    counts: list[int] = []
    reads = twin.store.kernel_reads
    found = reads.found
    with patch.object(reads, "found", lambda count, messages: (counts.append(count), found(count, messages))):
        twin.serve(pieces)
    return sum(counts)


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_any_pulls_and_any_bytes(seed: int) -> None:
    pull_twins(random.Random(seed).randbytes(seed % 9))


@pytest.mark.parametrize("seed", seeds(40, quick=2))
def test_damaged_frames_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(b"".join(pull_of(chance, 0.8) for _ in range(6)), chance)
    compare_pulls(pieces_of(stream))
    compare_pulls([stream[: chance.randrange(len(stream))]])


@pytest.mark.parametrize("seed", seeds(60, quick=3))
def test_every_slave_setting_and_permission(seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(pull_of(chance, 0.5) for _ in range(10))
    compare_pulls(
        [stream], slave_read_enable=chance.random() < 0.5, lite_pull_message_enable=chance.random() < 0.5,
        broker_permission=chance.choice((2, 6)),
    )  # fmt: skip


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_every_offset_and_filter(serialization: int) -> None:
    """Ends of files of the queue and of segments of the log, records that are checked, too few matches."""
    for tags in ("*", "A", "B || C", "no"):
        for queue_id in range(4):
            reads = [
                frame(
                    serialization, offset, queue_id=queue_id, queue_offset=offset, subscription=tags, max_msg_nums=most
                )
                for offset in range(105)
                for most in (1, 32)
            ]
            compare_pulls([b"".join(reads)])


@engines
@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_a_kernel_serves_pulls_with_and_without_a_subscription(is_native: bool, serialization: int) -> None:
    twin = Twin(is_native)
    twin.subscribe("Far", "CLUSTERING", "*")
    pull = frame(serialization, max_msg_nums=4)
    heard = frame(serialization, consumer_group="Far", sys_flag=3, subscription=None, max_msg_nums=4)
    assert served_by_kernel(twin, [pull * 8 + heard]) == 9
    assert served_by_kernel(twin, [frame(serialization, code=361, max_msg_nums=4)]) == 1


@engines
def test_a_kernel_serves_pulls_by_tags(is_native: bool) -> None:
    own = frame(max_msg_nums=4, subscription="A || B")
    heard = frame(consumer_group="Heard", sys_flag=3, subscription=None, max_msg_nums=4)
    assert served_by_kernel(Twin(is_native), [own + heard]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "Empty"}, {"queue_offset": 1000}, {"consumer_group": "Broad"}, {"consumer_group": "Off"},
        {"topic": "NoRead"}, {"expression_type": "SQL92", "subscription": "a > 1"}, {"request_source": 0},
        {"queue_id": 3, "queue_offset": COLD - 1}, {"subscription": "no"}, {"max_msg_nums": 0},
        {"consumer_group": "Heard", "sys_flag": 0, "sub_version": 6}, {"sys_flag": 0}, {"max_msg_bytes": 1},
    ],
)  # fmt: skip
@engines
def test_the_handler_serves_all_others(is_native: bool, changes: dict[str, Any]) -> None:
    assert served_by_kernel(Twin(is_native), [frame(**changes)]) == 0
    compare_pulls([frame(**changes)])


def _without_topic(twin: Twin) -> None:
    del twin.topics.by_name["Orders"]
    twin.config.plan_version.rise()


def _fewer_queues(twin: Twin) -> None:
    twin.topics.by_name["Orders"] = replace_struct(twin.topics.by_name["Orders"], read_queue_nums=0)
    twin.config.plan_version.rise()


def _group_off(twin: Twin) -> None:
    twin.groups.by_name["Heard"] = replace_struct(twin.groups.by_name["Heard"], consume_enable=False)
    twin.config.plan_version.rise()


def _now_broadcasting(twin: Twin) -> None:
    twin.subscribe("Heard", "BROADCASTING", "A || C")


def _other_tags(twin: Twin) -> None:
    twin.subscribe("Heard", "CLUSTERING", "B", version=6)


def _left(twin: Twin) -> None:
    twin.consumers.unregister("Heard", Listener(), notify=False)  # type: ignore[arg-type] # as much as is used


def _forbidden(twin: Twin) -> None:
    twin.groups._forbidden = {"Heard": {"Orders": 4}}
    twin.config.plan_version.rise()


def _reset(twin: Twin) -> None:
    twin.offsets.reset("Heard", "Orders", 0, 9)


def _not_readable(twin: Twin) -> None:
    twin.config.replace_broker(replace(twin.config.broker, broker_permission=2))


def _from_slaves(twin: Twin) -> None:
    twin.config.replace_broker(replace(twin.config.broker, slave_read_enable=True))


def replace_struct(before: Any, **changes: Any) -> Any:
    """Return a changed copy: tables replace configurations, and never change them."""
    after = copy(before)
    for name, value in changes.items():
        setattr(after, name, value)
    return after


@pytest.mark.parametrize(
    "change",
    [
        _without_topic, _fewer_queues, _group_off, _now_broadcasting, _other_tags, _left, _forbidden, _reset,
        _not_readable, _from_slaves,
    ],
)  # fmt: skip
def test_a_change_counts_from_the_next_pull_on(change: Callable[[Twin], None]) -> None:
    stream = frame(consumer_group="Heard", sys_flag=3) + frame(consumer_group="Heard")
    found = []
    for twin in (Twin(False, has_kernel=False), *map(Twin, ENGINES)):
        before = twin.serve([stream])
        change(twin)
        found.append([before, twin.serve([stream])])
        assert found[-1][0][0] != found[-1][1][0]
    assert all(one == found[0] for one in found)


@engines
def test_the_handler_serves_what_is_too_long_to_be_joined(is_native: bool) -> None:
    with patch.object(pull_frames, "JOIN_BYTES", 2000):
        assert served_by_kernel(Twin(is_native), [frame(), frame(max_msg_nums=1)]) == 1
        compare_pulls([frame() + frame(max_msg_nums=1)])


def test_a_pull_sees_the_sends_before_it(tmp_path: Path) -> None:
    """Also sends that wait for the end of the turn, because another connection has sent before."""

    async def run() -> None:
        async with hot_path(tmp_path) as path:
            await path.send(b"first")
            other = RemotingClient()
            await other.invoke(path.address, RequestCode.SEND_MESSAGE_V2, path.send_header(), b"second")
            *_, pulled = await asyncio.gather(path.send(b"third"), path.send(b"fourth"), path.pull())
            assert [bytes(record.body) for record in records(pulled.body)] == [b"first", b"second", b"third", b"fourth"]
            await other.close()

    asyncio.run(run())


def test_a_field_of_every_kind_in_every_place() -> None:
    fields = to_ext_fields(pull_header(max_msg_bytes=5000, request_source=-1))
    for name in fields:
        for text in ("", "null", "-1", "007", "9" * 19, "Zürich"):
            compare_pulls([frame() + encode_request(11, 7, {**fields, name: text})])
