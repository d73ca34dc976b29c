"""The compiled kernel of ends gives what the handler gives: log, responses and counts."""

import random
from typing import Any
from unittest.mock import patch

import pytest

from acl.auth.model import Action
from sprocket.common.errors import StoreError
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.message.topic_names import TRANS_OP_HALF_TOPIC
from store.message_store import MessageStore
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.end_targets import (
    COMMIT,
    HALVES,
    MIN_BYTES,
    ROLLBACK,
    OneTopic,
    Twin,
    compare_ends,
    compiled,
    counted,
    end_frame,
    end_of,
    end_twins,
    guarded,
)
from tests.store.reading import stored
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


def op_bodies(twin: Twin) -> list[bytes]:
    end = twin.store.max_offset(TRANS_OP_HALF_TOPIC, 0)
    return [bytes(stored(twin.store, TRANS_OP_HALF_TOPIC, 0, offset).body) for offset in range(1, end)]


@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_any_ends_and_any_bytes(seed: int) -> None:
    end_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 9))


@pytest.mark.parametrize("seed", seeds(20))
def test_damaged_frames_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(b"".join(end_of(chance, Twin(False).halves, 1.0) for _ in range(6)), chance)
    compare_ends(pieces_of(stream))
    compare_ends([stream[: chance.randrange(len(stream))]])


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("oneway", [False, True])
@pytest.mark.parametrize("sync_flush", [False, True])
def test_ends_of_a_read_are_one_append(serialization: int, oneway: bool, sync_flush: bool) -> None:
    halves = Twin(False).halves[10:15]
    outcomes = [COMMIT, COMMIT, ROLLBACK, COMMIT, COMMIT]
    stream = b"".join(
        end_frame(half, outcome, serialization=serialization, oneway=oneway, opaque=number)
        for number, (half, outcome) in enumerate(zip(halves, outcomes, strict=False))
    )
    twin = Twin(True, sync_flush=sync_flush)
    with counted(twin) as moved:
        responses, *_ = twin.serve([stream])
    # Four real messages and one op message.
    assert moved == [5]
    assert op_bodies(twin) == [b"10,11,12,13,14,"]
    assert twin.transactions.open.done == set(range(10, 15))
    assert len(responses) == (0 if oneway else 5)
    compare_ends([stream], sync_flush=sync_flush)


def test_all_ends_in_any_order_with_full_op_messages_between() -> None:
    halves = Twin(False).halves
    random.Random(3).shuffle(halves)
    reads = [b"".join(map(end_frame, halves[at : at + 20])) for at in range(0, HALVES, 20)]
    _, moved = compare_ends(reads, transaction_op_msg_max_size=7)
    # The end of a segment is for the handler.
    assert moved > HALVES // 2
    twin = Twin(True, transaction_op_msg_max_size=5)
    twin.serve([b"".join(map(end_frame, twin.halves[:5]))])
    assert op_bodies(twin) == [b"0,1,2,", b"3,4,"]


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_group": "Other"}, {"producer_group": ""}, {"tran_state_table_offset": 2}, {"commit_log_offset": 7},
        {"tran_state_table_offset": HALVES}, {"tran_state_table_offset": -1}, {"commit_or_rollback": 0},
        {"commit_or_rollback": 4}, {"msg_id": "Zürich"},
    ],
)  # fmt: skip
def test_the_handler_serves_a_run_with_one_end_for_it(changes: dict[str, Any]) -> None:
    halves = Twin(False).halves
    stream = end_frame(halves[0]) + end_frame(halves[1], opaque=2, oneway=False, **changes) + end_frame(halves[2])
    _, moved = compare_ends([stream])
    assert moved == 0


def test_the_handler_serves_an_end_that_is_repeated() -> None:
    half, other = Twin(False).halves[:2]
    assert compare_ends([end_frame(half) + end_frame(half, oneway=False)])[1] == 0
    assert compare_ends([end_frame(half), end_frame(other) + end_frame(half, oneway=False)])[1] == 2


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_failed_append_refuses_each_end(sync_flush: bool) -> None:
    """Nothing is stored, so the transactions stay open."""
    twin = Twin(True, sync_flush=sync_flush)
    stream = b"".join(end_frame(half, opaque=half[0], oneway=half[0] == 1) for half in twin.halves[:3])
    before = twin.store.wrote_offset
    with patch.object(MessageStore, "_append", side_effect=StoreError("no room")):
        # They do not begin with the first frame of the read.
        responses, *_ = twin.serve([encode_request(999, 9, {}) + stream])
    assert sorted(b"no room" in header for _, header, _ in responses) == [False, True, True]
    assert (twin.store.wrote_offset, twin.transactions.open.half_offset) == (before, 0)
    _, *state = twin.serve([stream])
    assert state[2:] == compare_ends([stream], sync_flush=sync_flush)[0][3:]


@pytest.mark.parametrize("topic", ["Orders", "Other"])
def test_behind_a_gate_the_real_topic_counts(topic: str) -> None:
    twin, access = Twin(True), OneTopic(topic, Action.PUB)
    twin.table = guarded(twin.table, access)
    stream = b"".join(end_frame(half, opaque=half[0], oneway=False) for half in twin.halves[:3])
    with counted(twin) as moved:
        responses, *_ = twin.serve([stream])
    refused = [b"not your topic" in header for _, header, _ in responses]
    assert refused == [topic == "Other"] * 3
    assert (moved, set(access.asked)) == ([] if topic == "Other" else [4], {"Orders"})


@pytest.mark.parametrize(("old", "new"), [(b'"msgId":"ID"', b'"msgId":"I-"'), (b'"Orders"', b'"Trades"')])
def test_one_header_of_another_form_among_many(old: bytes, new: bytes) -> None:
    frames = [end_frame(half) for half in Twin(False).halves[:20]]
    compare_ends([b"".join((*frames[:7], frames[7].replace(old, new), *frames[8:]))])
