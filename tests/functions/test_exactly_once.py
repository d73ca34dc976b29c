"""The runner of a partition on a changelog in memory: killed at each step, doubled, compacted, and torn."""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from sprocket import Message, MessageQueue, ReceivedMessage
from sprocket.client.errors import ClientError, NameServerUnreachable, TopicNotFound
from sprocket.functions import Context, Function, Retries, function
from sprocket.functions.records import Output, read_record
from sprocket.functions.runner import Counts, Fenced, PartitionRunner, Record
from tests.clock import ManualClock

INPUTS = 12


class Killed(BaseException):
    """The process is gone."""


class Cluster:
    """What brokers have: the changelog's records by offset, the inputs, and the outputs by id."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records: dict[int, tuple[str, bytes]] = {}
        self.end = 0
        self.inputs = [_message(number) for number in range(INPUTS)]
        self.outputs: dict[str, Output] = {}
        self.steps = 0
        self.kill_at = -1

    async def step(self) -> None:
        """A moment at which the process may be killed, and another one may go on."""
        await asyncio.sleep(0)
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def compact(self) -> None:
        """Keep the last record of each key of a part from the beginning."""
        upto = self.random.randint(0, self.end)
        last = {key: offset for offset, (key, _) in self.records.items() if offset < upto}
        self.records = {offset: one for offset, one in self.records.items() if offset >= upto or last[one[0]] == offset}


def _message(number: int) -> ReceivedMessage:
    return ReceivedMessage(
        topic="In", queue=MessageQueue("In", "b", 0), queue_offset=number, physical_offset=0, body=b"%d" % number,
        raw_properties=b"", flag=0, sys_flag=0, born_timestamp_ms=number * 100, born_host=b"", store_timestamp_ms=0,
        store_host=b"", reconsume_times=0, size_bytes=0,
    )  # fmt: skip


class Ports:
    """Changelog, inputs and outlets of one process; those of a dead one do nothing more."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._next = 0
        self.stop: Callable[[], None] = lambda: None
        self.missing: ClientError = TopicNotFound("Nowhere", "127.0.0.1:9876")

    async def read(self, offset: int) -> tuple[list[Record], int, bool]:
        await self.cluster.step()
        self.cluster.compact()
        end = min(self.cluster.end, offset + self.cluster.random.randint(1, 5))
        found = [self.cluster.records[at] for at in range(offset, end) if at in self.cluster.records]
        return [Record(read_record(key, body), 0) for key, body in found], end, end == self.cluster.end

    async def append(self, batch: Sequence[Message], at_offset: int) -> None:
        cluster = self.cluster
        await cluster.step()
        if cluster.end != at_offset:
            raise Fenced("another one was there")
        kept = len(batch)
        if cluster.steps + 1 == cluster.kill_at:
            kept = cluster.random.randint(1, len(batch))  # the broker crashes too, and its log loses the end
        for message in batch[:kept]:
            cluster.records[cluster.end] = str(message.keys), message.body
            cluster.end += 1
        await cluster.step()

    async def start(self, positions: Mapping[str, int]) -> dict[str, int]:
        self._next = positions.get("In", 0)
        return {} if "In" in positions else {"In": 0}

    async def take(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        await self.cluster.step()
        taken = self.cluster.inputs[self._next :][: min(most, self.cluster.random.randint(1, 4))]
        self._next += len(taken)
        if not taken:
            self.stop()
        return taken

    async def placed(self, output: Output, unique_key: str) -> Output:
        if output.topic != "Out":
            raise self.missing
        return replace(output, unique_key=unique_key)

    async def send(self, outputs: Sequence[Output], committed_ms: int) -> None:
        for output in outputs:
            await self.cluster.step()
            self.cluster.outputs.setdefault(output.unique_key, output)
        await self.cluster.step()


def runner_of(cluster: Cluster, declared: Function, missing: ClientError | None = None) -> PartitionRunner:
    ports = Ports(cluster)
    ports.missing = missing or ports.missing
    made = PartitionRunner(declared, "b/0", ports, ports, ports, Counts(), ManualClock())
    ports.stop = made.stop
    return made


def drawing(source: Iterator[int]) -> Function:
    """A function that never does the same twice: each call draws another number, which makes it add it, or fail."""

    @function(input={"In": bytes}, output="Out", group="g", state=int, retries=Retries(times=1, pause_s=0))
    async def draw(body: bytes, ctx: Context[int]) -> bytes:
        drawn = next(source)
        for name in ("all", f"of-{int(body) % 3}"):
            ctx.state.put(name, (ctx.state.get(name) or 0) + drawn)
        if int(body) % 4 == 3:
            ctx.state.delete(f"of-{int(body) % 3}")
        if drawn % 7 in (3, 4):
            raise ValueError("an input whose both tries fail is a dead letter")
        return b"%s %d %d" % (body, drawn, ctx.state.get("all") or 0)

    return draw


def check(cluster: Cluster, state: dict[str, int]) -> None:
    """Each input has one output or dead letter, sums follow from the outputs, and the state is the last sum."""
    found = cluster.outputs.values()
    rows = sorted(tuple(map(int, output.body.split())) for output in found if output.copied is None)
    dead = [output.copied[2] for output in found if output.copied is not None]
    assert sorted([number for number, _, _ in rows] + dead) == list(range(INPUTS))
    sums: dict[str, int] = {}
    for number, drawn, total in rows:
        for name in ("all", f"of-{number % 3}"):
            sums[name] = sums.get(name, 0) + drawn
        if number % 4 == 3:
            del sums[f"of-{number % 3}"]
        assert total == sums["all"]
    assert state == sums


async def finish(cluster: Cluster, declared: Function) -> PartitionRunner:
    """Run until no input is left, with a new process after each kill."""
    while True:
        runner = runner_of(cluster, declared)
        try:
            await runner.run()
        except Killed:
            cluster.kill_at = -1
        else:
            return runner


def state_of(runner: PartitionRunner) -> dict[str, int]:
    return {key: int(entry.value) for key, entry in runner.partition.entries.items()}


@pytest.mark.parametrize("seed", range(6))
async def test_a_process_killed_at_any_step_leaves_one_effect_of_each_input(seed: int) -> None:
    for kill_at in count(1):
        cluster = Cluster(seed)
        cluster.kill_at = kill_at
        declared = drawing(count(1))
        runner = await finish(cluster, declared)
        check(cluster, state_of(runner))
        check(cluster, state_of(await finish(cluster, declared)))
        if cluster.steps < kill_at:
            assert kill_at > 2 * INPUTS
            assert any(output.copied for output in cluster.outputs.values())
            return


@pytest.mark.parametrize("seed", range(30))
async def test_of_two_owners_that_both_think_they_own_the_partition_each_input_has_one_effect(seed: int) -> None:
    """A second process starts at a random step; both go on in random turns, and either is killed."""
    cluster = Cluster(seed)
    turns = random.Random(seed)
    declared = drawing(count(1))
    alive = [runner_of(cluster, declared).run() for _ in range(2)]
    while alive:
        chosen = turns.choice(alive)
        try:
            for _ in range(turns.randint(1, 3)):
                chosen.send(None)
        except (StopIteration, Fenced):
            alive.remove(chosen)
    check(cluster, state_of(await finish(cluster, declared)))


@pytest.mark.parametrize(
    ("key", "expires_at_ms"), [(b"k", None), ("\ud800", None), ("", None), ("k", 1.0), ("k", 2**70)]
)  # fmt: skip
async def test_state_that_a_changelog_could_not_be_read_with_fails_the_input_alone(
    key: str, expires_at_ms: int | None
) -> None:
    @function(input={"In": bytes}, group="g", state=int, retries=Retries(times=0))
    async def put(body: bytes, ctx: Context[int]) -> None:
        if body == b"3":
            ctx.state.put(key, 1, expires_at_ms=expires_at_ms)
        ctx.state.put("inputs", 1 + (ctx.state.get("inputs") or 0))

    cluster = Cluster(1)
    await finish(cluster, put)
    assert [output.copied for output in cluster.outputs.values()] == [("In", 0, 3)]
    assert state_of(await finish(cluster, put)) == {"inputs": INPUTS - 1}


async def test_an_event_time_that_no_changelog_can_have_fails_the_input_alone() -> None:
    @function(input={"In": bytes}, group="g", time=lambda body: 2**70 if body == b"3" else int(body))
    async def read(body: bytes, ctx: Context[int]) -> None:
        pass

    cluster = Cluster(1)
    await finish(cluster, read)
    assert [output.copied for output in cluster.outputs.values()] == [("In", 0, 3)]


async def test_a_handler_that_exits_fails_its_input_alone() -> None:
    @function(input={"In": bytes}, group="g", retries=Retries(times=0))
    async def leave(body: bytes, ctx: Context[int]) -> None:
        if body == b"3":
            sys.exit(1)

    cluster = Cluster(1)
    await finish(cluster, leave)
    assert [output.copied for output in cluster.outputs.values()] == [("In", 0, 3)]


async def test_an_input_that_is_sent_to_a_topic_that_is_not_there_is_a_dead_letter_and_the_next_one_follows() -> None:
    @function(input={"In": bytes}, output="Out", group="g", retries=Retries(times=2, pause_s=0))
    async def astray(body: bytes, ctx: Context[None]) -> bytes:
        if int(body) == 3:
            ctx.send("Nowhere", body)
        return body

    cluster = Cluster(1)
    await finish(cluster, astray)
    (dead,) = [one for one in cluster.outputs.values() if one.copied is not None]
    assert dead.copied is not None and dead.copied[2] == 3
    assert "sprocket topic create Nowhere" in str(dead.properties)
    assert len(cluster.outputs) == INPUTS


async def test_an_input_waits_while_no_name_server_says_where_its_output_goes() -> None:
    @function(input={"In": bytes}, group="g", retries=Retries(times=0))
    async def lost(body: bytes, ctx: Context[None]) -> None:
        ctx.send("Elsewhere", body)

    cluster = Cluster(1)
    runner = runner_of(cluster, lost, NameServerUnreachable("127.0.0.1:9876", "refused"))
    with pytest.raises(NameServerUnreachable):
        await runner.run()
    assert not cluster.outputs
