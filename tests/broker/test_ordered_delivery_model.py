"""Random joins, leaves, deaths, pauses, stops and crashes against a model of orderly consumption.

A real broker on a real store, asked over its port by members that do what stock clients do.  A queue is one member's
at a time, its messages come in order and without a gap, and who takes it over goes on where the group is.
The broker keeps locks in memory, as RocketMQ does: after a restart one member may go on for 30 s with another's queue.
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

from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from tests.broker.insides import periodic_of, work_now
from tests.broker.ordered_member import LOCK_INTERVAL_S, REBALANCE_S, OrderedMember, Taken
from tests.broker.ordered_model import LOCK_LIVE_S, QUEUES, Model
from tests.broker.rig import GROUP, TOPIC, TestClient, broker_config, create, store_config
from tests.clock import ManualClock
from tests.running_copy import copy_of_running
from tests.waiting import until

T = TypeVar("T")
IDS = ("m1", "m2", "m3")
SILENCE_S = 120.0
MAX_STOPS = 3


class OrderedDeliveryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp())
        self.copies = self.restarts = 0
        self.clock = ManualClock()
        self.model = Model()
        self.members: dict[str, OrderedMember] = {}
        self.run(self._start(self.root / "0"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def now_s(self) -> float:
        return self.clock.monotonic()

    async def _start(self, folder: Path) -> None:
        self.folder = folder
        config = broker_config(flush_consumer_offset_interval=3_600_000)
        self.broker = Broker(config, store_config(folder), clock=self.clock)
        await self.broker.start()
        self.client = TestClient(f"127.0.0.1:{self.broker.port}")
        self.forgotten_s = self.now_s if self.copies or self.restarts else -1.0
        self.model.holds.clear()
        self.model.registered.clear()
        for member in self.members.values():
            member.reconnect(self.client.address)

    async def _stop(self) -> None:
        for member in self.members.values():
            await member.client.close()
        await self.client.close()
        await self.broker.stop()

    @initialize()
    def begin(self) -> None:
        header = create(read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        self.run(self.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        body = dumps(SubscriptionGroupConfig(GROUP))
        self.run(self.client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))
        for queue_id in range(QUEUES):
            self.send(queue_id=queue_id, count=4)
        self.join("m1")
        self.join("m2")

    # What members do by themselves

    async def _heartbeat(self, member: OrderedMember) -> None:
        is_new = member.client_id not in self.model.registered
        await member.heartbeat()
        assert await member.is_told() == is_new
        self.model.registered[member.client_id] = self.now_s
        for other in self.members.values():
            if other is not member and other.client_id in self.model.registered:
                assert await other.is_told() == is_new, "a member hears of who joins, and of nothing else"
                other.rebalance_at = self.now_s if is_new else other.rebalance_at

    async def _lock(self, member: OrderedMember, queues: list[int]) -> list[int]:
        granted = await member.lock(queues)
        assert granted == self.model.lock(member.client_id, queues, self.now_s)
        return granted

    async def _commit(self, member: OrderedMember, queue_id: int) -> None:
        await member.commit(queue_id)
        self.model.committed[queue_id] = member.taken[queue_id].handled

    async def _rebalance(self, member: OrderedMember) -> None:
        member.rebalance_at = self.now_s + REBALANCE_S
        ids = await member.members()
        assert ids == sorted(self.model.registered)
        if member.client_id not in ids:
            return  # The broker has forgotten it; its next heartbeat mends that.
        share = member.share(ids, QUEUES)
        for queue_id in sorted(member.taken.keys() - set(share)):
            await self._give_back(member, queue_id)
        for queue_id in share:
            if queue_id not in member.taken and await self._lock(member, [queue_id]):
                await self._take(member, queue_id)

    async def _give_back(self, member: OrderedMember, queue_id: int) -> None:
        await self._commit(member, queue_id)
        await member.unlock([queue_id])
        self.model.unlock(member.client_id, [queue_id])
        del member.taken[queue_id]

    async def _take(self, member: OrderedMember, queue_id: int) -> None:
        begin = await member.committed(queue_id)
        assert begin == self.model.committed[queue_id] <= self.model.handled[queue_id], "messages would be skipped"
        member.taken[queue_id] = Taken(begin, begin, True, self.now_s)

    async def _renew(self, member: OrderedMember) -> None:
        member.lock_at = self.now_s + LOCK_INTERVAL_S
        if member.taken:
            member.note_locked(await self._lock(member, sorted(member.taken)))

    async def _tick(self, member: OrderedMember) -> None:
        if member.heartbeat_at <= self.now_s:
            await self._heartbeat(member)
        if member.lock_at <= self.now_s:
            await self._renew(member)
        if member.rebalance_at <= self.now_s:
            await self._rebalance(member)

    def _awake(self) -> list[OrderedMember]:
        return [member for _, member in sorted(self.members.items()) if not member.is_frozen]

    # Rules

    @rule(queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 4))
    def send(self, queue_id: int, count: int) -> None:
        for _ in range(count):
            body = b"%d-%d" % (queue_id, len(self.model.sent[queue_id]))
            self.run(self.client.send(body, queue_id=queue_id))
            self.model.sent[queue_id].append(body)

    @rule(client_id=st.sampled_from(IDS))
    def join(self, client_id: str) -> None:
        if client_id not in self.members:
            self.members[client_id] = OrderedMember(client_id, self.client.address, self.clock)
            self.run(self._heartbeat(self.members[client_id]))
            self.run(self._rebalance(self.members[client_id]))

    def _drawn(self, data: st.DataObject) -> OrderedMember:
        return data.draw(st.sampled_from(self._awake()), label="member")

    @precondition(lambda self: self._awake())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """An orderly shutdown: commit, unlock, unregister."""
        member = self._drawn(data)
        for queue_id in sorted(member.taken):
            self.run(self._give_back(member, queue_id))
        self.run(member.unregister())
        self._gone(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Its process ends, and unlocks nothing."""
        self._gone(self.members[data.draw(st.sampled_from(sorted(self.members)))])

    def _gone(self, member: OrderedMember) -> None:
        del self.members[member.client_id]
        self.run(member.client.close())
        was_known = self.model.registered.pop(member.client_id, None) is not None
        self.run(until(lambda: self._known_to_broker() == set(self.model.registered)))
        self.run(self._told_of_the_loss(was_known))

    async def _told_of_the_loss(self, is_less: bool) -> None:
        for other in self.members.values():
            if other.client_id in self.model.registered:
                assert await other.is_told() == is_less
                other.rebalance_at = self.now_s if is_less else other.rebalance_at

    def _known_to_broker(self) -> set[str]:
        group = self.broker.consumers.group(GROUP)
        return set(group.client_ids()) if group is not None else set()

    @precondition(lambda self: self._awake())
    @rule(data=st.data())
    def rebalance(self, data: st.DataObject) -> None:
        self.run(self._rebalance(self._drawn(data)))

    @precondition(lambda self: any(member.taken for member in self._awake()))
    @rule(data=st.data(), most=st.integers(1, 5), results=st.lists(st.booleans(), max_size=4))
    def pull(self, data: st.DataObject, most: int, results: list[bool]) -> None:
        """And handle some of it; False suspends the queue: the same message comes next."""
        member = data.draw(st.sampled_from([member for member in self._awake() if member.taken]))
        queue_id = data.draw(st.sampled_from(sorted(member.taken)))
        if member.taken[queue_id].is_locked:  # else a stock client puts it off
            self.run(self._pull(member, queue_id, most))
        for is_handled in results:
            self._handle(member, queue_id, is_handled)

    async def _pull(self, member: OrderedMember, queue_id: int, most: int) -> None:
        taken, sent = member.taken[queue_id], self.model.sent[queue_id]
        begin = taken.next_pull
        found = await member.pull(queue_id, most)
        assert found == list(enumerate(sent[begin : begin + most], begin))
        assert taken.next_pull == begin + len(found)
        if taken.handled:
            self.model.committed[queue_id] = taken.handled

    def _handle(self, member: OrderedMember, queue_id: int, is_handled: bool) -> None:
        taken = member.taken[queue_id]
        if not taken.pulled or not taken.may_handle(self.now_s):
            return
        self._nobody_else_may_handle(member, queue_id)
        offset, body = taken.pulled[0]
        assert offset == taken.handled, "out of order"
        assert body == self.model.sent[queue_id][offset]
        assert offset <= self.model.handled[queue_id], "one before it was skipped"
        if is_handled:
            del taken.pulled[0]
            taken.handled = offset + 1
            self.model.handled[queue_id] = max(self.model.handled[queue_id], taken.handled)

    def _nobody_else_may_handle(self, member: OrderedMember, queue_id: int) -> None:
        if member.taken[queue_id].locked_at > self.forgotten_s:
            hold = self.model.holds[queue_id]
            assert hold.client_id == member.client_id and self.now_s - hold.since_s <= LOCK_LIVE_S

    @precondition(lambda self: self._awake())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """What clients do every 5 s."""
        member = self._drawn(data)
        for queue_id in sorted(member.taken):
            self.run(self._commit(member, queue_id))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def freeze_or_thaw(self, data: st.DataObject) -> None:
        """A long collection of garbage, SIGSTOP: it does nothing, and its connection stays."""
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        member.is_frozen = not member.is_frozen

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def lock_what_may_be_anothers(self, data: st.DataObject) -> None:
        """A member that rebalanced by an old list asks for more than its share, and releases what it gets."""
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        wanted = [queue_id for queue_id in range(QUEUES) if queue_id not in member.taken]
        self.run(self._lock(member, wanted))
        if data.draw(st.booleans(), label="gives back"):
            # All of them, also those that it did not get: they stay the other's.
            self.run(member.unlock(wanted))
            self.model.unlock(member.client_id, wanted)

    @rule(seconds=st.sampled_from([1, 5, 20, 31, 61, 130]))
    def elapse(self, seconds: int) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.clock.advance(min(10.0, end_s - self.now_s))
            self._expire()
            for member in self._awake():
                self.run(self._tick(member))

    def _expire(self) -> None:
        """What the broker does every 10 s: it drops clients without a heartbeat for channelExpiredTimeout."""
        silent = {client_id for client_id, at in self.model.registered.items() if self.now_s - at > SILENCE_S}
        for client_id in silent:
            del self.model.registered[client_id]
        self.run(self._scan([self.members[client_id] for client_id in silent]))

    async def _scan(self, silent: list[OrderedMember]) -> None:
        await work_now("client_scan", periodic_of(self.broker))
        assert self._known_to_broker() == set(self.model.registered)
        for member in silent:
            await until(member.is_cut_off)
        await self._told_of_the_loss(bool(silent))

    # What happens to brokers

    @rule()
    def save(self) -> None:
        """What the broker does every flushConsumerOffsetInterval."""
        self.broker.offsets.persist()
        self.model.saved = list(self.model.committed)

    @precondition(lambda self: self.copies + self.restarts < MAX_STOPS)
    @rule()
    def restart(self) -> None:
        self.restarts += 1
        self.run(self._stop())
        self.run(self._start(self.folder))
        self.model.saved = list(self.model.committed)

    @precondition(lambda self: self.copies + self.restarts < MAX_STOPS)
    @rule()
    def crash(self) -> None:
        """The next broker finds the files as they are while this one still runs."""
        self.copies += 1
        copy = self.root / str(self.copies)
        copy_of_running(self.folder, copy)
        self.run(self._stop())
        (copy / "store" / "lock").unlink(missing_ok=True)
        self.run(self._start(copy))
        self.model.committed = list(self.model.saved)

    # What must hold

    @invariant()
    def one_member_handles_a_queue(self) -> None:
        for queue_id in range(QUEUES):
            those = [
                client_id
                for client_id, member in self.members.items()
                if (taken := member.taken.get(queue_id)) is not None
                and taken.may_handle(self.now_s)
                and taken.locked_at > self.forgotten_s
            ]
            assert len(those) <= 1

    @invariant()
    def a_group_is_where_it_has_committed(self) -> None:
        found = [max(0, self.broker.offsets.query(GROUP, TOPIC, queue_id)) for queue_id in range(QUEUES)]
        assert found == self.model.committed
        assert all(at <= done for at, done in zip(self.model.committed, self.model.handled, strict=True))

    def teardown(self) -> None:
        """In the end the consumers that are left handle every queue to its end."""
        try:
            for member in self.members.values():
                member.is_frozen = False
            self.join("m1")
            self.elapse(130)
            self.run(self._lock(stranger := OrderedMember("m9", self.client.address, self.clock), list(range(QUEUES))))
            self.run(stranger.client.close())
            for member in self._awake():
                for queue_id, taken in sorted(member.taken.items()):
                    self._drain(member, queue_id, taken)
            assert self.model.handled == [len(sent) for sent in self.model.sent]
            self.elapse(1)
            assert sorted(queue_id for member in self._awake() for queue_id in member.taken) == list(range(QUEUES))
        finally:
            self.run(self._stop())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.root)

    def _drain(self, member: OrderedMember, queue_id: int, taken: Taken) -> None:
        assert taken.may_handle(self.now_s), "a queue that nobody else wants is refused"
        while taken.pulled or taken.next_pull < len(self.model.sent[queue_id]):
            if not taken.pulled:
                self.run(self._pull(member, queue_id, 32))
            self._handle(member, queue_id, True)


def _run(examples: int) -> None:
    run_state_machine_as_test(
        OrderedDeliveryModel,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.timeout(600)
def test_a_queue_is_handled_in_order_by_one_member_at_a_time() -> None:
    _run(8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_for_longer() -> None:
    _run(100)
