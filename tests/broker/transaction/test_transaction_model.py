"""Random halves, ends, answers, silence, stops and crashes against a model of transactions.

A real broker on a real store, asked over its port.  A transaction is committed, rolled back or given up, one of them
and once; what is committed is seen once, in its queue; who has not ended is asked at each turn of the check, and not
before its time.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.message_id import offset_message_id
from broker.server import Broker
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC
from tests.broker.rig import TestClient, broker_config, create, store_config, stored
from tests.broker.transaction.model import CHECK_MAX, TIMEOUT_MS, TOPICS, CutAppend, Model, Target, Transaction
from tests.broker.transaction.model_producer import Place, Producer, Question
from tests.broker.transaction.rig import COMMIT, ROLLBACK, UNKNOWN
from tests.clock import ManualClock
from tests.running_copy import copy_of_running

T = TypeVar("T")
PRODUCERS = {"a1": "PA", "a2": "PA", "b1": "PB"}  # client id -> group
INTERVAL_S = 30
IMMUNITIES = (None, "1", "20", "45", "100", "soon")
OUTCOMES = (COMMIT, ROLLBACK, UNKNOWN)
MAX_STOPS = 5


class TransactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp())
        self.stops = 0
        self.clock = ManualClock()
        self.model = Model()
        self.producers: dict[str, Producer] = {}
        self.questions: list[Question] = []
        self.run(self._start(self.root / "0"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _start(self, folder: Path) -> None:
        self.folder = folder
        # Turns are taken by hand, on the model's clock; so is the saving of offsets.
        config = broker_config(
            transaction_time_out=TIMEOUT_MS, transaction_check_max=CHECK_MAX,
            transaction_check_interval=3_600_000, flush_consumer_offset_interval=3_600_000,
        )  # fmt: skip
        self.broker = Broker(config, store_config(folder), clock=self.clock)
        await self.broker.start()
        self.next_turn_ms = self.clock.wall_ms() + INTERVAL_S * 1000
        self.client = TestClient(f"127.0.0.1:{self.broker.port}")
        self.seen: dict[Target, list[str]] = {target: [] for target in self.model.visible}
        connected, self.producers = list(self.producers), {}
        for client_id in connected:
            await self._join(client_id)

    async def _join(self, client_id: str) -> None:
        producer = Producer(self.client.address, client_id, PRODUCERS[client_id])
        await producer.heartbeat()
        self.producers[client_id] = producer

    async def _stop(self) -> None:
        for producer in self.producers.values():
            await producer.close()
        await self.client.close()
        await self.broker.stop()

    @initialize()
    def begin(self) -> None:
        for topic in TOPICS:
            self.run(self.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic)))
        self.run(self._join("a1"))
        self.run(self._join("b1"))

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def half_place(self, offset: int) -> Place:
        entry = self.broker.store.entry(TRANS_HALF_TOPIC, 0, offset)
        assert entry is not None
        return offset, entry[0]

    def _some(self, data: st.DataObject) -> Transaction:
        """Of those that have ended the last ones alone, so that open ones are drawn often."""
        known = list(self.model.transactions.values())
        ended = [transaction for transaction in known if transaction.state != "open"]
        return data.draw(st.sampled_from(self.model.open() + ended[-3:]))

    # What producers do

    @rule(
        count=st.integers(1, 3), group=st.sampled_from(["PA", "PB"]), topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 1), immunity=st.sampled_from(IMMUNITIES),
    )  # fmt: skip
    def prepare(self, count: int, group: str, topic: str, queue_id: int, immunity: str | None) -> None:
        for _ in range(count):
            key = f"K{len(self.model.transactions)}"
            place = self.run(
                Producer.prepare(self.client, key, group, topic, queue_id, born_ms=self.now_ms, immunity=immunity)
            )
            assert place == self.half_place(self.model.halves)
            self.model.halves += 1
            self.model.transactions[key] = Transaction(
                key, group, (topic, queue_id), self.now_ms, immunity, [place], self.now_ms
            )

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 1))
    def send_without_a_transaction(self, topic: str, queue_id: int) -> None:
        self.run(self.client.send(b"plain", topic, queue_id))
        self.model.visible[topic, queue_id].append("plain")

    @precondition(lambda self: self.model.transactions)
    @rule(data=st.data(), outcome=st.sampled_from([COMMIT, ROLLBACK]), times=st.integers(1, 2))
    def end(self, data: st.DataObject, outcome: int, times: int) -> None:
        """Under its first place or that of a copy, at times twice at once."""
        transaction = self._some(data)
        header = transaction.ending(data.draw(st.sampled_from(transaction.places)), outcome)
        codes = self.run(self._end_all([header] * times))
        for code in codes:
            if transaction.is_refused_unasked(self.now_ms):
                assert code == ResponseCode.ILLEGAL_OPERATION
            elif transaction.state == "open":
                assert code == ResponseCode.SUCCESS
                self.model.end(transaction, outcome)
            else:
                assert code == ResponseCode.SYSTEM_ERROR

    async def _end_all(self, headers: list[EndTransactionRequestHeader]) -> list[int]:
        asked = [self.client.ask(RequestCode.END_TRANSACTION, header) for header in headers]
        return [answer.code for answer in await asyncio.gather(*asked)]

    @precondition(lambda self: self.model.transactions)
    @rule(
        data=st.data(), wrong=st.sampled_from(["group", "queue offset", "log offset", "outcome"]),
        outcome=st.sampled_from([COMMIT, ROLLBACK]),
    )  # fmt: skip
    def end_with_something_wrong(self, data: st.DataObject, wrong: str, outcome: int) -> None:
        transaction = self._some(data)
        header = transaction.ending(data.draw(st.sampled_from(transaction.places)), outcome, from_check=True)
        if wrong == "group":
            header.producer_group = "PB" if transaction.group == "PA" else "PA"
        elif wrong == "queue offset":
            header.tran_state_table_offset += data.draw(st.sampled_from([-1, 1]))
        elif wrong == "log offset":
            header.commit_log_offset += data.draw(st.sampled_from([-1, 1, 1 << 40]))
        else:
            header.commit_or_rollback = 4
        assert self.run(self._end_all([header])) == [ResponseCode.SYSTEM_ERROR]

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def answer(self, data: st.DataObject, outcome: int) -> None:
        """One of the last questions; that of a turn before comes late."""
        question = data.draw(st.sampled_from(self.questions[-8:]))
        self._answer(question, outcome)

    def _answer(self, question: Question, outcome: int) -> None:
        transaction = self.model.transactions[question.key]
        header = transaction.ending(question.place, outcome, from_check=True)
        self.run(self.client.remoting.notify(self.client.address, RequestCode.END_TRANSACTION, header))
        self.run(self.client.pull())  # on the same connection: the broker has read what came before
        if outcome != UNKNOWN and transaction.state == "open":
            self.model.end(transaction, outcome)

    @rule(client_id=st.sampled_from(sorted(PRODUCERS)), is_orderly=st.booleans())
    def producer_comes_or_goes(self, client_id: str, is_orderly: bool) -> None:
        producer = self.producers.pop(client_id, None)
        if producer is None:
            self.run(self._join(client_id))
        else:
            self.run(producer.leave(self.broker, is_orderly=is_orderly))

    # Time

    @rule(seconds=st.sampled_from([0.5, 3, 6, 15, 30, 70]))
    def elapse(self, seconds: float) -> None:
        end_ms = self.now_ms + round(seconds * 1000)
        while self.next_turn_ms <= end_ms:
            self.clock.advance((self.next_turn_ms - self.now_ms) / 1000)
            self.next_turn_ms += INTERVAL_S * 1000
            self._turn()
        self.clock.advance((end_ms - self.now_ms) / 1000)

    async def _check(self) -> list[Question]:
        """One turn, and what producers were asked in it."""
        for producer in self.producers.values():
            await producer.heartbeat()
            assert not producer.take(), "asked between two turns"
        self.broker.transaction_check.turn()
        found = []
        for producer in self.producers.values():
            await producer.heartbeat()  # whose answer comes after the questions
            found += producer.take()
        return found

    def _turn(self) -> None:
        acts = [(transaction, transaction.due(self.now_ms)) for transaction in self.model.open()]
        asked = self.run(self._check())
        self.model.copied([act for act in acts if act[1] != "wait"], self.now_ms, self.half_place)
        for transaction, act in acts:
            if act == "give up":
                transaction.state = "given up"
        groups = {producer.group for producer in self.producers.values()}
        expected = [
            Question(transaction.key, transaction.places[-1], transaction.group, *transaction.target)
            for transaction, act in acts
            if act == "ask" and transaction.group in groups
        ]
        assert sorted(asked) == sorted(expected)
        self.questions += sorted(asked)

    # What operators do

    @precondition(lambda self: self.model.given_up)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.model.given_up) - 1))
        transaction = self.model.transactions[self.model.given_up[offset]]
        if transaction.state not in ("open", "given up"):
            return  # Resumed and ended; resumed again it is checked again, as in RocketMQ.
        record = stored(self.broker, TRANS_CHECK_MAX_TIME_TOPIC, 0, offset)
        header = ResumeCheckHalfMessageRequestHeader(
            topic=TRANS_CHECK_MAX_TIME_TOPIC, msg_id=offset_message_id(bytes(record.store_host), record.physical_offset)
        )
        code = self.run(self.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code
        assert code == (ResponseCode.SUCCESS if transaction.state == "given up" else ResponseCode.SYSTEM_ERROR)
        if transaction.state == "given up":
            transaction.state, transaction.checks, transaction.stored_ms = "open", 0, self.now_ms
            transaction.places.append(self.half_place(self.model.halves))
            self.model.halves += 1

    # What happens to brokers

    @rule()
    def save(self) -> None:
        """What the broker does every flushConsumerOffsetInterval, after a turn of the check."""
        self.broker.store.flush()
        self.broker.transactions.commit_offsets()
        self.broker.offsets.persist()

    @precondition(lambda self: self.stops < MAX_STOPS)
    @rule()
    def restart(self) -> None:
        self.stops += 1
        self.run(self._stop())
        self.run(self._start(self.folder))

    def _new_copy(self) -> Path:
        self.stops += 1
        return self.root / str(self.stops)

    def _crash_into(self, copy: Path) -> None:
        self.run(self._stop())
        (copy / "store" / "lock").unlink(missing_ok=True)
        self.run(self._start(copy))

    @precondition(lambda self: self.stops < MAX_STOPS)
    @rule()
    def crash(self) -> None:
        """The next broker finds the files as they are while this one still runs."""
        copy = self._new_copy()
        copy_of_running(self.folder, copy)
        self._crash_into(copy)

    @precondition(lambda self: self.model.open() and self.stops < MAX_STOPS)
    @rule(data=st.data(), kept=st.integers(0, 4), with_save=st.booleans())
    def crash_in_an_end(self, data: st.DataObject, kept: int, with_save: bool) -> None:
        """Of real messages and the op message some are in the log."""
        chosen = data.draw(
            st.lists(st.sampled_from(self.model.open()), unique_by=lambda one: one.key, min_size=1, max_size=3)
        )
        outcomes = {one.key: data.draw(st.sampled_from([COMMIT, COMMIT, ROLLBACK])) for one in chosen}
        if with_save:
            self.save()
        cut = CutAppend(self.broker, kept, self.folder, copy := self._new_copy())
        headers = [one.ending(one.places[0], outcomes[one.key], from_check=True) for one in chosen]
        self.run(self._end_all(headers))
        if cut.written is None:
            return
        self.model.cut_ends(chosen, outcomes, cut.written)
        self._crash_into(copy)

    @precondition(lambda self: self.model.open() and self.stops < MAX_STOPS)
    @rule(kept=st.integers(0, 4))
    def crash_in_a_turn(self, kept: int) -> None:
        self.clock.advance((self.next_turn_ms - self.now_ms) / 1000)
        acts = [(transaction, transaction.due(self.now_ms)) for transaction in self.model.open()]
        acts = [act for act in acts if act[1] != "wait"]
        cut = CutAppend(self.broker, kept, self.folder, copy := self._new_copy())
        self.run(self._check())
        assert (cut.written is None) == (not acts)
        if not acts:
            self.next_turn_ms += INTERVAL_S * 1000
            return
        self.model.copied(acts[:kept], self.now_ms, self.half_place)
        for transaction, act in acts:
            if act == "give up" and kept > len(acts):
                transaction.state = "given up"  # else its copy is there, and the word that it is done with is not
        self._crash_into(copy)

    # What must hold

    @invariant()
    def those_are_open_that_nobody_has_ended(self) -> None:
        table = self.broker.transactions.open
        end = self.broker.store.max_offset(TRANS_HALF_TOPIC, 0)
        assert end == self.model.halves
        expected = [transaction.open_at for transaction in self.model.open()]
        assert [offset for offset in range(end) if table.is_open(offset)] == expected
        committed = self.broker.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        assert committed <= min(expected, default=end), "a start would forget one"

    @invariant()
    def what_is_committed_is_seen_once(self) -> None:
        if self.broker.topics.get(TOPICS[-1]) is None:
            return  # not begun
        for target in self.model.visible:
            self.seen[target] += self.run(self._pull(*target))
            assert self.seen[target] == self.model.visible[target]

    async def _pull(self, topic: str, queue_id: int) -> list[str]:
        answer = await self.client.pull(topic, queue_id, len(self.seen[topic, queue_id]))
        if answer.code != ResponseCode.SUCCESS:
            return []
        return [message.body.decode() for message in decode_records(answer.body, MessageQueue(topic, "b", queue_id))]

    @invariant()
    def what_is_given_up_is_kept_for_operators(self) -> None:
        end = self.broker.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0)
        found = [bytes(stored(self.broker, TRANS_CHECK_MAX_TIME_TOPIC, 0, offset).body) for offset in range(end)]
        assert [body.decode() for body in found] == self.model.given_up

    def teardown(self) -> None:
        """In the end every producer answers, and nothing stays open."""
        try:
            for client_id in PRODUCERS.keys() - self.producers.keys():
                self.run(self._join(client_id))
            for _ in range(6):
                known = len(self.questions)
                self.elapse(INTERVAL_S)
                for question in self.questions[known:]:
                    self._answer(question, COMMIT)
            self.what_is_committed_is_seen_once()
            assert not self.model.open()
            self.those_are_open_that_nobody_has_ended()
        finally:
            self.run(self._stop())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.root)


def _run(examples: int) -> None:
    run_state_machine_as_test(
        TransactionModel,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.timeout(600)
def test_each_transaction_ends_one_way() -> None:
    _run(5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_for_longer() -> None:
    _run(100)
