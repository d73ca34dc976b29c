"""Ends of transactions by the compiled engine: the same records, refusals and counts as by Python."""

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store import moves
from tests.broker.transaction.rig import COMMIT, ROLLBACK, TOPIC, UNKNOWN, Rig
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(moves.engine is None, reason="the compiled engine is not built")

# Properties besides those that every half message has; some replace one of those.
EXTRA: tuple[dict[str, str], ...] = (
    {}, {"a": "b"}, {"TAGS": "Zürich"}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}, {"REAL_QID": "7"}, {"REAL_QID": "x"},
    {"REAL_TOPIC": TRANS_HALF_TOPIC}, {"REAL_TOPIC": "Unknown"}, {"TRANSACTION_CHECK_TIMES": "1"}, {"a#": "b"},
    {"K": "日本"}, {"PGROUP": "Other"}, {"INNER_NUM": "1"}, {"K": "v" * 2000}, {"": "v"}, {"x": ""},
)  # fmt: skip
OUTCOMES = (COMMIT, COMMIT, COMMIT, COMMIT, ROLLBACK, UNKNOWN, 3)


class Twin:
    """A broker's transactions, and how many records the compiled engine made."""

    def __init__(self, root: Path) -> None:
        self.rig = Rig(root)
        self.moved = 0
        append = self.rig.store.append_usual

        def counting(records: Any) -> int:
            self.moved += len(records)
            return append(records)

        self.rig.store.append_usual = counting  # type: ignore[method-assign]
        # New queues are left to Python.
        self.rig.end(self.rig.prepare("first"), COMMIT)

    def play(self, chance: random.Random, reads: int) -> "Twin":
        rig = self.rig
        halves = [rig.prepare("K0")]
        usual = [rig.prepare("K1"), rig.prepare("K2")]
        for read in range(reads):
            for number in range(chance.randrange(1, 10)):
                body = bytes(chance.randrange(1, 300))
                usual.append(rig.prepare(f"U{read}x{number}", body))
                halves.append(rig.prepare(f"K{read}x{number}", body, 0, **chance.choice(EXTRA)))
            plain = chance.random() < 0.6
            requests = []
            for _ in range(chance.randrange(1, min(12, len(usual)))):
                place = usual.pop(chance.randrange(len(usual))) if plain else chance.choice(halves)
                changes: dict[str, Any] = {}
                if not plain and chance.random() < 0.2:
                    name = chance.choice(("producer_group", "tran_state_table_offset", "commit_log_offset"))
                    changes[name] = (
                        "Other" if name == "producer_group" else chance.choice((-1, 0, place[0] + 1, 1 << 40))
                    )
                outcome = chance.choice((COMMIT, COMMIT, ROLLBACK)) if plain else chance.choice(OUTCOMES)
                requests.append(rig.request(place, outcome, is_oneway=chance.random() < 0.5, **changes))
            rig.processor.end(requests)
            rig.clock.advance(chance.choice((0.0, 0.5, 4.0)))
        return self

    def state(self) -> list[Any]:
        """What is stored, answered and counted."""
        rig = self.rig
        records = {
            (topic, queue_id): [
                bytes(record) for record in self._records(topic, queue_id)
            ]
            for topic, queue_id in sorted(rig.store.queues())
        }  # fmt: skip
        done = rig.transactions
        latencies = sorted((labels, one.counts, one.total) for labels, one in done.latencies.read())
        answers = [(answer.code, answer.remark) for answer in rig.channel.answers]
        opened, half_end = done.open, rig.store.max_offset(TRANS_HALF_TOPIC, 0)
        return [
            records, answers, dict(done.committed), dict(done.rolled_back), latencies, rig.store.wrote_offset,
            (opened.half_offset, opened.op_offset, opened.open_offsets(half_end, 1000)),
        ]  # fmt: skip

    def _records(self, topic: str, queue_id: int) -> list[memoryview]:
        found = []
        for offset in range(self.rig.store.max_offset(topic, queue_id)):
            entry = self.rig.store.entry(topic, queue_id, offset)
            assert entry is not None
            record = self.rig.store.record_at(entry[0], entry[1])
            assert record is not None
            found.append(record)
        return found


def twins(root: Path, seed: int, reads: int) -> tuple[Twin, Twin]:
    with patch.object(moves, "engine", None):
        python = Twin(root / "python").play(random.Random(seed), reads)
    return python, Twin(root / "native").play(random.Random(seed), reads)


@pytest.mark.parametrize("seed", seeds(24, quick=4))
def test_any_ends_of_any_half_messages(tmp_path: Path, seed: int) -> None:
    python, native = twins(tmp_path, seed, 12)
    for one, other in zip(native.state(), python.state(), strict=True):
        assert one == other
    assert (python.moved, native.moved > 0) == (0, True)
    python.rig.close()
    native.rig.close()


def test_usual_ends_are_one_append_of_the_compiled_engine(tmp_path: Path) -> None:
    twin = Twin(tmp_path)
    rig = twin.rig
    halves = [rig.prepare(f"K{number}") for number in range(6)]
    outcomes = [COMMIT, COMMIT, ROLLBACK, COMMIT, COMMIT]
    rig.processor.end([rig.request(half, outcome) for half, outcome in zip(halves, outcomes, strict=False)])
    # Four real messages and one op message.
    assert twin.moved == 5
    assert (rig.op_bodies()[-1], rig.open_count()) == (b"1,2,3,4,5,", 1)
    assert rig.delivered()[1:] == ["K0", "K1", "K3", "K4"]
    rig.close()


def test_a_full_op_message_is_followed_by_another(tmp_path: Path) -> None:
    rig = Rig(tmp_path, transaction_op_msg_max_size=5)
    rig.end(rig.prepare("first"), COMMIT)
    halves = [rig.prepare(f"K{number}") for number in range(4)]
    rig.processor.end([rig.request(half, COMMIT) for half in halves])
    assert rig.op_bodies() == [b"0,", b"1,2,3,", b"4,"]
    assert rig.transactions.open.op_offset == 3
    rig.close()


def test_a_read_with_one_wrong_end_is_decided_by_python(tmp_path: Path) -> None:
    twin = Twin(tmp_path)
    rig = twin.rig
    halves = [rig.prepare(f"K{number}") for number in range(3)]
    requests = [rig.request(half, COMMIT) for half in halves]
    requests[1].header.producer_group = "Other"
    rig.processor.end(requests)
    assert twin.moved == 0
    assert rig.delivered()[1:] == ["K0", "K2"]
    assert [answer.code for answer in rig.channel.answers].count(0) == 3
    rig.close()


def test_op_messages_and_real_messages_are_of_different_queues(tmp_path: Path) -> None:
    twin = Twin(tmp_path)
    rig = twin.rig
    before = rig.store.max_offset(TRANS_OP_HALF_TOPIC, 0), rig.store.max_offset(TOPIC, 2)
    halves = [rig.prepare(f"K{number}") for number in range(3)]
    rig.processor.end([rig.request(half, COMMIT) for half in halves])
    after = rig.store.max_offset(TRANS_OP_HALF_TOPIC, 0), rig.store.max_offset(TOPIC, 2)
    assert (after[0] - before[0], after[1] - before[1]) == (1, 3)
    rig.close()
