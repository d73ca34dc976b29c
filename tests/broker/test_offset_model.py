"""Random commits, pulls, resets, clones, deletions, stops and crashes against a model of offsets.

A real broker on a real store, asked over its port.  Offsets are what was committed last; a reset hides the commit and
holds others off until a pull was told of it; a stop keeps everything but resets that wait, and these are committed; a
crash takes back only what was not saved yet.  That may be a group that a pull created, as no response to a pull waits
for the file of groups: the group's next pull creates it again, and its offsets are as they were saved.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from sprocket.common import failpoints
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.bodies.stats import ConsumeStats, ResetOffsetBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.broker.rig import TOPIC, TestClient, broker_config, create, store_config
from tests.clock import ManualClock
from tests.running_copy import copy_of_running

T = TypeVar("T")
Key = tuple[str, int]  # group, queue id
GROUPS, QUEUES = ("A", "B", "C"), (0, 1)
groups, queues = st.sampled_from(GROUPS), st.sampled_from(QUEUES)


@dataclass
class Model:
    """What must be."""

    sent_ms: dict[int, list[int]] = field(default_factory=lambda: {queue_id: [] for queue_id in QUEUES})
    existing: set[str] = field(default_factory=lambda: set(GROUPS))
    created_by_pull: set[str] = field(default_factory=set)  # and perhaps not in the file yet
    committed: dict[Key, int] = field(default_factory=dict)
    waiting: dict[Key, int] = field(default_factory=dict)  # resets that no pull was told of yet
    saved: dict[Key, int] = field(default_factory=dict)

    def visible(self, key: Key) -> int | None:
        return self.waiting.get(key, self.committed.get(key))


class OffsetModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp())
        self.starts = 0
        self.clock = ManualClock()
        self.model = Model()
        self.run(self._start(self.root / "0"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _start(self, folder: Path) -> None:
        self.folder = folder
        # Saved when the model says so, and not by the time that a history takes.
        config = broker_config(flush_consumer_offset_interval=3_600_000)
        self.broker = Broker(config, store_config(folder), clock=self.clock)
        await self.broker.start()
        self.client = TestClient(f"127.0.0.1:{self.broker.port}")

    async def _stop(self) -> None:
        await self.client.close()
        await self.broker.stop()

    @initialize()
    def begin(self) -> None:
        self.run(self.client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create()))
        for group in GROUPS:
            self._create_group(group)

    def _create_group(self, group: str) -> None:
        body = dumps(SubscriptionGroupConfig(group))
        self.run(self.client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))
        self._groups_are_saved()
        self.model.existing.add(group)

    def _groups_are_saved(self) -> None:
        """The broker has answered a request whose response waits for all changes of groups so far."""
        self.model.created_by_pull.clear()

    def teardown(self) -> None:
        self.run(self._stop())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.root)

    # What clients do

    @rule(queue_id=queues, count=st.integers(1, 4))
    def send(self, queue_id: int, count: int) -> None:
        for _ in range(count):
            self.clock.advance(1)
            self.run(self.client.send(queue_id=queue_id))
            self.model.sent_ms[queue_id].append(self.clock.wall_ms())

    @rule(group=groups, queue_id=queues, offset=st.integers(0, 20))
    def commit(self, group: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=TOPIC, queue_id=queue_id, commit_offset=offset
        )
        code = self.run(self.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code
        if group not in self.model.existing:
            assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            return
        assert code == ResponseCode.SUCCESS
        if (group, queue_id) not in self.model.waiting:
            self.model.committed[group, queue_id] = offset

    @rule(group=groups, queue_id=queues, offset=st.integers(0, 20), commit=st.one_of(st.none(), st.integers(0, 20)))
    def pull(self, group: str, queue_id: int, offset: int, commit: int | None) -> None:
        header = PullMessageRequestHeader(
            consumer_group=group, topic=TOPIC, queue_id=queue_id, queue_offset=offset, max_msg_nums=32,
            sys_flag=4 | (commit is not None), commit_offset=commit or 0, suspend_timeout_millis=0, subscription="*",
            sub_version=0, expression_type="TAG",
        )  # fmt: skip
        response = self.run(self.client.ask(RequestCode.PULL_MESSAGE, header))
        if group not in self.model.existing:
            self.model.existing.add(group)
            self.model.created_by_pull.add(group)
        target = self.model.waiting.pop((group, queue_id), None)
        # A pull that is where the reset leads is served at once.
        if target is not None and target != offset:
            assert response.code == ResponseCode.PULL_OFFSET_MOVED
            assert response.header(PullMessageResponseHeader).next_begin_offset == target
            return
        if commit is not None:
            self.model.committed[group, queue_id] = commit
        if offset < len(self.model.sent_ms[queue_id]):
            assert response.code == ResponseCode.SUCCESS

    @precondition(lambda self: self.model.existing != set(GROUPS))
    @rule(data=st.data(), commit=st.one_of(st.none(), st.integers(0, 20)))
    def pull_of_a_deleted_group(self, data: st.DataObject, commit: int | None) -> None:
        group = data.draw(st.sampled_from(sorted(set(GROUPS) - self.model.existing)))
        self.pull(group=group, queue_id=0, offset=0, commit=commit)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data(), commit=st.one_of(st.none(), st.integers(0, 20)))
    def pull_after_a_reset(self, data: st.DataObject, commit: int | None) -> None:
        group, queue_id = data.draw(st.sampled_from(sorted(self.model.waiting)))
        self.pull(group=group, queue_id=queue_id, offset=0, commit=commit)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data(), offset=st.integers(0, 20))
    def commit_after_a_reset(self, data: st.DataObject, offset: int) -> None:
        group, queue_id = data.draw(st.sampled_from(sorted(self.model.waiting)))
        self.commit(group=group, queue_id=queue_id, offset=offset)

    # What operators do

    @rule(group=groups, data=st.data())
    def reset_all(self, group: str, data: st.DataObject) -> None:
        times = sorted({0, -1, *self.model.sent_ms[0], *self.model.sent_ms[1]})
        timestamp = data.draw(st.sampled_from(times))
        expected = {queue_id: self._offset_at(queue_id, timestamp) for queue_id in QUEUES}
        self._reset(ResetOffsetRequestHeader(group=group, topic=TOPIC, timestamp=timestamp, is_force=True), expected)

    @rule(group=groups, queue_id=queues, offset=st.integers(0, 20))
    def reset_one(self, group: str, queue_id: int, offset: int) -> None:
        header = ResetOffsetRequestHeader(
            group=group, topic=TOPIC, queue_id=queue_id, offset=offset, timestamp=0, is_force=True
        )
        is_there = offset <= len(self.model.sent_ms[queue_id])
        self._reset(header, {queue_id: offset} if is_there else None)

    def _offset_at(self, queue_id: int, timestamp: int) -> int:
        sent = self.model.sent_ms[queue_id]
        if timestamp == -1:
            return len(sent)
        later = [offset for offset, at in enumerate(sent) if at >= timestamp]
        # After the last message a time is the end.
        return later[0] if later else len(sent)

    def _reset(self, header: ResetOffsetRequestHeader, expected: dict[int, int] | None) -> None:
        response = self.run(self.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
        if header.group not in self.model.existing:
            assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        elif expected is None:
            assert response.code == ResponseCode.SYSTEM_ERROR
        else:
            assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)
            found = by_queue(loads(response.body, ResetOffsetBody[str]).offset_table)
            assert {queue.queue_id: offset for queue, offset in found.items()} == expected
            for queue_id, offset in expected.items():
                self.model.waiting[header.group, queue_id] = offset
                self.model.committed[header.group, queue_id] = offset

    @rule(source=groups, copy=groups)
    def clone(self, source: str, copy: str) -> None:
        header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=copy, topic=TOPIC)
        self.run(self.client.ask_well(RequestCode.CLONE_GROUP_OFFSET, header))
        taken = {queue_id: at for (group, queue_id), at in self.model.committed.items() if group == source}
        if taken:
            self._forget(copy)
            self.model.committed |= {(copy, queue_id): at for queue_id, at in taken.items()}

    def _forget(self, group: str) -> None:
        for table in (self.model.committed, self.model.waiting):
            for queue_id in QUEUES:
                table.pop((group, queue_id), None)

    @rule(group=groups, with_offsets=st.booleans())
    def delete_group(self, group: str, with_offsets: bool) -> None:
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=with_offsets)
        self.run(self.client.ask_well(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
        if group in self.model.existing:
            self._groups_are_saved()
        self.model.existing.discard(group)
        if with_offsets:
            self._forget(group)

    @rule(group=groups)
    def create_group(self, group: str) -> None:
        self._create_group(group)

    # What happens to brokers

    @rule()
    def save(self) -> None:
        """What the broker does every flushConsumerOffsetInterval."""
        self.broker.offsets.persist()
        self.model.saved = dict(self.model.committed)

    @rule()
    def restart(self) -> None:
        self.run(self._stop())
        self._groups_are_saved()
        self.model.waiting.clear()
        self.run(self._start(self.folder))
        assert self._groups_there() == self.model.existing
        # A broker moves back an offset past a queue's end.
        self.model.committed = self._within_queues(self.model.committed)
        self.model.saved = dict(self.model.committed)

    @rule()
    def crash(self) -> None:
        """The next broker finds the files as they are while this one still runs."""
        self._go_on_with(self._files_now())

    @rule(group=groups)
    def crash_before_the_group_of_a_pull_is_saved(self, group: str) -> None:
        is_new = group not in self.model.existing
        with _held_writes():
            self.pull(group=group, queue_id=0, offset=0, commit=None)
            copy = self._files_now()
        lost = self._go_on_with(copy)
        assert group in lost or not is_new

    def _files_now(self) -> Path:
        self.starts += 1
        copy = self.root / str(self.starts)
        copy_of_running(self.folder, copy)
        return copy

    def _go_on_with(self, copy: Path) -> set[str]:
        """End the broker, and start one that finds `copy`.  Return the groups that were lost until their next pull."""
        self.run(self._stop())
        (copy / "store" / "lock").unlink(missing_ok=True)
        self.model.waiting.clear()
        self.run(self._start(copy))
        # A broker moves back an offset past a queue's end, and saves that.
        self.model.committed = self._within_queues(self.model.saved)
        self.model.saved = dict(self.model.committed)
        lost = self.model.existing - self._groups_there()
        assert lost <= self.model.created_by_pull
        # Consumers go on pulling.  All of these pull, lost or not: how fast the disk was must not change what follows.
        self.model.existing -= self.model.created_by_pull
        for group in sorted(self.model.created_by_pull):
            self.pull(group=group, queue_id=0, offset=0, commit=None)
        assert self._groups_there() == self.model.existing
        return lost

    def _groups_there(self) -> set[str]:
        response = self.run(self.client.ask_well(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return loads(response.body, SubscriptionGroupTable).subscription_group_table.keys() & set(GROUPS)

    def _within_queues(self, table: dict[Key, int]) -> dict[Key, int]:
        return {key: min(offset, len(self.model.sent_ms[key[1]])) for key, offset in table.items()}

    # What must hold

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        if not self.broker.topics.get(TOPIC):
            return
        found = {}
        for group in GROUPS:
            for queue_id in QUEUES:
                header = QueryConsumerOffsetRequestHeader(
                    consumer_group=group, topic=TOPIC, queue_id=queue_id, set_zero_if_not_found=False
                )
                response = self.run(self.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header))
                if response.code == ResponseCode.SUCCESS:
                    found[group, queue_id] = response.header(QueryConsumerOffsetResponseHeader).offset
        keys = self.model.committed.keys() | self.model.waiting.keys()
        assert found == {key: self.model.visible(key) for key in keys}

    @rule(group=groups)
    def look_at_progress(self, group: str) -> None:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=TOPIC)
        response = self.run(self.client.ask_well(RequestCode.GET_CONSUME_STATS, header))
        table = by_queue(loads(response.body, ConsumeStats[str]).offset_table)
        for queue_id in QUEUES:
            shown = table[MessageQueue(TOPIC, "broker-a", queue_id)]
            assert shown.broker_offset == len(self.model.sent_ms[queue_id])
            assert shown.consumer_offset == (self.model.visible((group, queue_id)) or 0)
            assert shown.pull_offset >= shown.consumer_offset


@contextmanager
def _held_writes() -> Iterator[None]:
    """Let no small file change, as on a slow disk, until the end of the context."""
    point, is_over = failpoints.declared()["atomic_file.before_sync"], threading.Event()

    def wait() -> None:
        is_over.wait()

    point.arm(wait)
    try:
        yield
    finally:
        point.arm(None)
        is_over.set()


def _run(examples: int) -> None:
    run_state_machine_as_test(
        OffsetModel,
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.timeout(600)
def test_offsets_are_as_they_were_set() -> None:
    _run(5)


def test_a_group_that_a_crash_loses_is_there_again_after_its_next_pull() -> None:
    machine = OffsetModel()
    try:
        machine.begin()
        machine.commit("A", 0, 0)
        machine.save()
        machine.delete_group("A", with_offsets=False)
        machine.crash_before_the_group_of_a_pull_is_saved("A")
        machine.offsets_are_those_of_the_model()
        machine.reset_one("A", 0, 0)
    finally:
        machine.teardown()


def test_a_group_that_a_pull_created_is_there_after_a_restart() -> None:
    machine = OffsetModel()
    try:
        machine.begin()
        machine.delete_group("A", with_offsets=False)
        machine.pull("A", 0, 0, None)
        machine.restart()
    finally:
        machine.teardown()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_for_longer() -> None:
    _run(200)
