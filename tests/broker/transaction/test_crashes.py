"""Crashes: whatever step one falls between, each transaction ends exactly one way and none is forgotten."""

import random
from pathlib import Path

import pytest

from broker.transaction.half_message import op_messages
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.record.record import Appended
from tests.broker.transaction.rig import COMMIT, ROLLBACK, TOPIC, UNKNOWN, Crash, Rig
from tests.store.rig import HOST, message
from tests.tiers import seeds


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, -1])
def test_an_end_that_a_crash_cuts_is_done_or_is_asked_about(tmp_path: Path, kept: int) -> None:
    """Of three commits and their op message some are in the log."""
    rig = Rig(tmp_path)
    halves = [rig.prepare(f"K{number}") for number in range(3)]
    rig.crash_in(0, kept)
    with pytest.raises(Crash):
        rig.processor.end([rig.request(half, COMMIT) for half in halves])
    rig.crash()
    written = 3 if kept < 0 else min(kept, 3)
    assert rig.turn() == [f"K{number}" for number in range(written, 3)]
    rig.answer(dict.fromkeys(["K0", "K1", "K2"], COMMIT))
    assert (rig.delivered(), rig.open_count()) == (["K0", "K1", "K2"], 0)
    rig.close()


@pytest.mark.parametrize("kept", [0, 1, 2, -1])
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_a_check_that_a_crash_cuts_leaves_one_of_each(tmp_path: Path, outcome: int, kept: int) -> None:
    rig = Rig(tmp_path)
    rig.prepare("K0")
    rig.prepare("K1", CHECK_IMMUNITY_TIME_IN_SECONDS="31")
    rig.crash_in(0, kept)
    with pytest.raises(Crash):
        rig.turn()
    rig.crash()
    assert sorted(rig.turn()) == ["K0", "K1"]
    rig.answer(dict.fromkeys(["K0", "K1"], outcome))
    assert sorted(rig.delivered()) == (["K0", "K1"] if outcome == COMMIT else [])
    assert (rig.open_count(), rig.turn()) == (0, [])
    rig.close()


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_one_that_is_given_up_is_so_once_or_with_a_second_copy_and_never_lost(tmp_path: Path, kept: int) -> None:
    rig = Rig(tmp_path, transaction_check_max=1)
    rig.prepare("K")
    rig.turn()
    rig.crash_in(0, kept)
    with pytest.raises(Crash):
        rig.turn()
    rig.crash()
    rig.turn()
    # Cut between the copy and the op message it is copied again: an operator sees it twice, a consumer never.
    assert rig.given_up() == ["K"] * (2 if kept == 1 else 1)
    assert (rig.open_count(), rig.delivered()) == (0, [])
    rig.close()


def test_a_store_that_rocketmq_left_is_taken_over(tmp_path: Path) -> None:
    """Op messages of many offsets, some below the committed one; a commit whose op message was never written."""
    rig = Rig(tmp_path)
    halves = [rig.prepare(f"K{number}") for number in range(6)]
    rig.store.append(list(op_messages([0, 2, 3], 4096, HOST, 0)))
    half = rig.transactions.half_at(halves[4][1])
    assert half is not None
    rig.store.append([half.real(TOPIC, 2, rig.transactions.tags_codes)])
    rig.store.append([message(TOPIC, 2, properties=b"UNIQ_KEY\x01other\x02") for _ in range(10)])
    rig.crash()
    assert rig.turn() == ["K1", "K5"]
    rig.close()


def test_an_immune_copy_of_rocketmq_whose_first_one_has_ended_is_not_asked_about(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.prepare("other")
    rig.prepare("K", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    rig.prepare("K", CHECK_IMMUNITY_TIME_IN_SECONDS="1", TRAN_PREPARED_QUEUE_OFFSET="1")
    rig.store.append(list(op_messages([1], 4096, HOST, 0)))
    rig.crash()
    # The producer ended it under the first one, which RocketMQ's broker does not look at any more.
    assert rig.turn() == ["other"]
    rig.close()


class History:
    """Random steps; in the end every transaction is accounted for."""

    def __init__(self, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rig = Rig(root, transaction_check_max=4)
        self.known: dict[str, Appended] = {}
        self.outcomes: dict[str, int] = {}
        self.count = 0

    def step(self) -> None:
        dice, rig = self.dice, self.rig
        kind = dice.choice(["prepare"] * 6 + ["end"] * 6 + ["turn"] * 2 + ["save", "crash", "arm", "plain"])
        if kind == "prepare":
            key = f"K{self.count}"
            self.count += 1
            extra = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "45"} if dice.random() < 0.3 else {}
            self.outcomes[key] = dice.choice([COMMIT, COMMIT, ROLLBACK])
            self.known[key] = rig.prepare(key, **extra)
        elif kind == "end" and self.known:
            chosen = dice.sample(sorted(self.known), min(len(self.known), dice.randint(1, 4)))
            outcomes = [self.outcomes[key] if dice.random() < 0.8 else UNKNOWN for key in chosen]
            rig.processor.end(
                [rig.request(self.known[key], outcome) for key, outcome in zip(chosen, outcomes, strict=True)]
            )
        elif kind == "turn":
            rig.turn(dice.choice([1.0, 10.0, 31.0]))
            if dice.random() < 0.6:
                rig.answer(self.outcomes)
        elif kind == "save":
            rig.save_offsets()
        elif kind == "plain":
            rig.store.append([message(TOPIC, 2, properties=b"UNIQ_KEY\x01plain\x02")])
        elif kind == "crash":
            rig.crash()
        elif kind == "arm":
            rig.crash_in(dice.randint(0, 3), dice.choice([0, 1, 2, 3, -1]))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
            except Crash:
                self.rig.crash()
        self.rig.crash()
        for _ in range(8):
            self.rig.turn(31.0)
            self.rig.answer(self.outcomes)


@pytest.mark.parametrize("seed", seeds(40))
def test_history(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    history.run(60)
    rig = history.rig
    delivered = [key for key in rig.delivered() if key != "plain"]
    assert len(delivered) == len(set(delivered)), "delivered twice"
    given_up = set(rig.given_up())
    assert not given_up & set(delivered), "given up and delivered"
    assert not [key for key in delivered if history.outcomes[key] != COMMIT], "rolled back and delivered"
    missing = [
        key
        for key, outcome in history.outcomes.items()
        if outcome == COMMIT and key in history.known and key not in given_up and key not in delivered
    ]
    assert not missing, "forgotten"
    assert rig.open_count() == 0
    # What the queues say is what RocketMQ would find there, too.
    opened = rig.transactions.open
    assert opened.half_offset == rig.store.max_offset(TRANS_HALF_TOPIC, 0)
    assert opened.op_offset == rig.store.max_offset(TRANS_OP_HALF_TOPIC, 0)
    rig.close()
