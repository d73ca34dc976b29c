"""One seed: clusters with producers, replicators that die or exist twice, brokers that restart; then the check.

Checked is that each message is in each cluster exactly once, that the order of each queue of origin is kept, and that
translated offsets are exact: a group that moves gets the first message that it has not consumed, and none before it
but those that the other queue has in another order.  That is so in rings and meshes, too, by the origins of messages.
In the shape "lossy" the target forgets the end of its log at restarts.  In the shape "rewound" one cluster of a mesh
does so once, and sends other messages with the same numbers: a group that moves may get more again, but misses nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import permutations, product
from random import Random

from replicate.protocol.copies import SourceQueue
from replicate.protocol.marks import mark_in
from replicate.protocol.offset_map import NO_ECHOES
from replicate.protocol.origins import Streams, moved
from replicate.protocol.position import Checkpoint
from replicate.queue_copier import CopyRules, QueueCopier
from tests.clock import ManualClock
from tests.sim.replicate.sim_cluster import BROKER, TOPIC, SimCluster, SimSource, SimTarget, turns

QUEUES = 2
SHAPES = {
    "pair": (("a", "b"), (("a", "b"), ("b", "a"))),
    "ring": (("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a"))),
    # Each copies to the two others, and none forwards copies.
    "mesh": (("a", "b", "c"), tuple(permutations("abc", 2))),
    "lossy": (("a", "b"), (("a", "b"),)),
    "rewound": (("a", "b", "c"), tuple(permutations("abc", 2))),
}


@dataclass
class Outcome:
    """What one seed showed."""

    seed: int
    shape: str
    problems: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    moves: int = 0  # of groups, that were checked

    def report(self) -> str:
        """What failed, and how to see it again."""
        again = f"python -m tests.sim.replicate.soak --first {self.seed} --seeds 1 --shape {self.shape}"
        return "\n".join([*self.problems[:10], f"faults: {self.faults}", again])


class Run:
    """One seed while it runs."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.random = Random(outcome.seed)
        self.clock = ManualClock()
        self.is_settled = False
        self.lost: set[str] = set()  # messages that their cluster has no more
        names, self.links = SHAPES[outcome.shape]
        self.clusters = {name: SimCluster(name, QUEUES, self.random) for name in names}
        self.saved: dict[tuple[str, str, int], Checkpoint] = {}
        self.tasks: set[asyncio.Task[object]] = set()
        self.copiers: dict[asyncio.Task[object], tuple[tuple[str, str, int], QueueCopier]] = {}

    def spawn(self, work: Coroutine[object, object, object]) -> "asyncio.Task[object]":
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _echo_end(self, source: str, target: str) -> int:
        return 0 if (target, source) in self.links else NO_ECHOES

    def begin(self, link: tuple[str, str, int]) -> None:
        """Start one more copier of a queue, from the checkpoint that was saved last."""
        source, target, queue_id = link
        rules = CopyRules(
            target=target, forwards=self.outcome.shape not in ("mesh", "rewound"),
            batch_bytes=self.random.choice((400, 3000)), compresses=False, skips_refused=False, admit=self._admit,
            pause=self._pause, is_open=lambda: True,
            refused=self._refused, known=lambda queue: self.saved.get(link),
            keep=lambda queue, checkpoint: self._keep(link, checkpoint),
            keeps_origins=self.outcome.shape != "lossy",
        )  # fmt: skip
        checkpoint = self.saved.setdefault(
            link, Checkpoint(BROKER, queue_id, 0, 0, echo_end=self._echo_end(source, target))
        )
        target_end = SimTarget(self.clusters[target], queue_id, self.spawn, self.outcome.faults)
        copier = QueueCopier(
            SourceQueue(source, TOPIC, BROKER, queue_id), SimSource(self.clusters[source], queue_id), target_end,
            SimSource(self.clusters[target], queue_id), checkpoint, rules, self.clock,
        )  # fmt: skip
        self.copiers[self.spawn(copier.run())] = link, copier

    async def _admit(self, size_bytes: int) -> None:
        await turns(self.random, 2)

    async def _pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await turns(self.random, 5)

    async def _refused(self, *ignored: object) -> None:
        raise AssertionError("nothing is refused here")

    async def _keep(self, link: tuple[str, str, int], checkpoint: Checkpoint) -> None:
        assert link[0] == "c" and self.outcome.shape == "rewound", "no source loses anything"
        self.saved[link] = checkpoint

    def all_links(self) -> list[tuple[str, str, int]]:
        return [(source, target, number) for source, target in self.links for number in range(QUEUES)]

    def fault(self) -> None:
        """Do one thing that happens."""
        kind = self.random.choice(("kill", "twin", "restart", "save", "save", "time"))
        if kind == "kill" and self.copiers:
            task = self.random.choice(list(self.copiers))
            link, _ = self.copiers.pop(task)
            task.cancel()
            if all(other != link for other, _ in self.copiers.values()):
                self.begin(link)
        elif kind == "twin" and len(self.copiers) < 2 * len(self.all_links()):
            self.begin(self.random.choice(self.all_links()))
        elif kind == "restart":
            cluster = self.clusters[self.random.choice(list(self.clusters))]
            is_last = self.outcome.shape == "lossy" and cluster.name == "b"
            cluster.crash(self.random.randint(0, 5) if is_last else 0)
        elif kind == "save":
            for link, copier in self.copiers.values():
                if self.random.random() < 0.5:
                    self.saved[link] = copier.checkpoint
            self.check_offsets()
            self.check_moves()
        elif kind == "time":
            self.clock.advance(self.random.choice((1.0, 40.0)))
        self.outcome.faults[kind] = self.outcome.faults.get(kind, 0) + 1

    async def play(self) -> None:
        """Send and break for a while; then let one copier of each queue finish, and check."""
        for link in self.all_links():
            self.begin(link)
        senders = ["a"] if self.outcome.shape == "lossy" else list(self.clusters)
        count = self.random.randint(20, 120)
        for number in range(count):
            if self.outcome.shape == "rewound" and number == count // 2:
                await self.lose_end("c")
            name, queue_id = self.random.choice(senders), self.random.randrange(QUEUES)
            self.clusters[name].produce(queue_id, f"{name}-{queue_id}-{number:05}")
            self.outcome.messages += 1
            await turns(self.random, 20)
            if self.random.random() < 0.2:
                self.fault()
        await self.settle()
        self.is_settled = True
        self.check()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def lose_end(self, name: str) -> None:
        """Let all restart, and one cluster forget the end of its log, when the others have it.

        Go on when each link from it has seen that: one that looks later takes other messages for those that it copied.
        """
        copiers = [(link, copier) for link, copier in self.copiers.values() if link[0] == name]
        await self._until(lambda: all(copier.position.next_offset >= self._end(link) for link, copier in copiers))
        before = {key for number in range(QUEUES) for key in self.clusters[name].keys(number)}
        for cluster in self.clusters.values():
            cluster.crash(self.random.randint(1, 5) if cluster.name == name else 0)
        self.lost = {key for key in before if key.startswith(name)} - {
            key for number in range(QUEUES) for key in self.clusters[name].keys(number)
        }
        self.clusters[name].takes_copies = False
        await self._until(lambda: all(self._has_seen(link, copier) for link, copier in copiers))
        self.clusters[name].takes_copies = True

    async def _until(self, holds: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if holds():
                return
            await asyncio.sleep(0)
        self.outcome.problems.append("the links from a cluster that is to lose its end stand still")

    def _end(self, link: tuple[str, str, int]) -> int:
        return len(self.clusters[link[0]].queues[link[2]])

    def _has_seen(self, link: tuple[str, str, int], copier: QueueCopier) -> bool:
        is_located = copier.position.is_of(self.clusters[link[1]].session)
        return is_located and copier.position.next_offset <= self._end(link)

    async def settle(self) -> None:
        for _ in range(20_000):
            await asyncio.sleep(0)
            if self.has_all() and not self.unread():
                break
        await turns(self.random, 600)

    def has_all(self) -> bool:
        """Return whether each cluster has all messages; it may also have some that their cluster has lost."""
        queues = list(product(self.clusters.values(), range(QUEUES)))
        if any(len(cluster.queues[number]) < len(self.originals(number)) for cluster, number in queues):
            return False
        return not self.lost or all({*self.originals(number)} <= {*cluster.keys(number)} for cluster, number in queues)

    def originals(self, queue_id: int) -> list[str]:
        """The ids of all messages that applications sent to a queue of any cluster."""
        return [
            key for cluster in self.clusters.values() for key in cluster.keys(queue_id) if key.startswith(cluster.name)
        ]

    def check(self) -> None:
        for cluster in self.clusters.values():
            for number in range(QUEUES):
                keys = cluster.keys(number)
                wanted = [*self.originals(number), *self.lost.intersection(keys)]
                if sorted(keys) != sorted(wanted):
                    doubled = sorted({key for key in keys if keys.count(key) > 1})
                    lost = sorted(set(wanted) - set(keys))
                    self.outcome.problems.append(f"{cluster.name}/{number}: lost {lost[:5]}, doubled {doubled[:5]}")
                for origin in self.clusters:
                    own = [key for key in keys if key.startswith(origin)]
                    if own != sorted(own):
                        self.outcome.problems.append(f"{cluster.name}/{number}: messages of {origin} out of order")
        self.check_offsets()
        self.check_moves()
        self.outcome.problems += [f"{queue}: it was not read to its end" for queue in self.unread()]

    def check_offsets(self) -> None:
        """A translated offset is the place of the first message from an offset on: of copies, and of echoes' originals.

        Where the target loses its end, places are known again when a copier has gone on.
        """
        if self.outcome.shape == "rewound" or (self.outcome.shape == "lossy" and not self.is_settled):
            return
        for (source, target, number), copier in self.copiers.values():
            position = copier.position
            places = dict[int, int]()
            for place, properties in enumerate(self.clusters[target].queues[number]):
                mark = mark_in(TOPIC, properties)
                if mark is not None and mark.source == source:
                    places.setdefault(mark.offset, place)
            for offset, properties in enumerate(self.clusters[source].queues[number][: position.next_offset]):
                mark = mark_in(TOPIC, properties)
                if mark is not None and mark.source == target and mark.queue_id == number:
                    places[offset] = mark.offset
            for offset in range(position.next_offset + 1):
                known = [place for each, place in places.items() if offset <= each < position.next_offset]
                wanted = min(known, default=max(position.map.target_end, position.map.echo_end))
                found = position.map.translate(offset)
                if found != wanted:
                    self.outcome.problems.append(f"{source}>{target}/{number}: {offset} is {found}, not {wanted}")

    def read(self) -> dict[tuple[str, int], list[Streams]]:
        """What copiers have read of each queue, in its newest epoch."""
        read: dict[tuple[str, int], list[Checkpoint]] = {}
        for (source, _, number), copier in self.copiers.values():
            read.setdefault((source, number), []).append(copier.checkpoint)
        return {
            queue: [one.streams for one in known if one.streams and one.epoch == max(one.epoch for one in known)]
            for queue, known in read.items() if any(one.streams for one in known)
        }  # fmt: skip

    def unread(self) -> list[tuple[str, int]]:
        """The queues that no copier has read to their end."""
        return [
            (name, number) for (name, number), known in self.read().items()
            if max(streams.end for streams in known) < len(self.clusters[name].queues[number])
        ]  # fmt: skip

    def check_moves(self) -> None:
        """A group goes on at the first message that it has not consumed, of those that were read, and skips none.

        What a cluster lost before it came here is not counted.
        """
        keys = {(name, number): cluster.keys(number)
                for name, cluster in self.clusters.items() for number in range(QUEUES)}  # fmt: skip
        read = self.read()
        for source, target in self.links:
            for number in range(QUEUES):
                for here, there in product(read.get((source, number), []), read.get((target, number), [])):
                    self.check_move(keys[source, number], here, keys[target, number], there)

    def check_move(self, keys: list[str], here: Streams, others: list[str], there: Streams) -> None:
        end = len(keys)
        for offset in {end, here.end, self.random.randint(0, end), self.random.randint(max(0, end - 5), end)}:
            consumed = {*keys[: min(offset, here.end)], *self.lost.difference(keys)}
            wanted = next((place for place, key in enumerate(others[: there.end]) if key not in consumed), there.end)
            found = moved([(here, offset)], there, self.clusters.keys())
            self.outcome.moves += 1
            if found is None or found > wanted or (found < wanted and self.outcome.shape != "rewound"):
                self.outcome.problems.append(f"a group at {offset} of {keys} goes to {found}, not {wanted}: {others}")


def play(seed: int, shape: str | None = None) -> Outcome:
    """Run one seed; without a shape, in one of them."""
    outcome = Outcome(seed, shape or tuple(SHAPES)[seed % len(SHAPES)])
    asyncio.run(Run(outcome).play())
    return outcome
