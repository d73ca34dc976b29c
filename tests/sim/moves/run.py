"""A run: an operator moves queues, clients go on, and the operator and brokers are stopped at any request.

The steps of moves are those of `StaticTopics`, the rules of brokers those of `broker.topic` and `broker.pull`, and
clients read routes with `topic_route`.  Only disk, network and time are simulated.  One seed is one run.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

import msgspec

from broker.plan.table import Refused
from broker.pull.logical_pull import Offsets, logical_offsets
from broker.topic.logical_queue import led_items
from broker.topic.topic_queue_mappings import check_detail, merged
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.client.connection.topic_route import TopicRoute, topic_route
from sprocket.client.send.queue_choice import by_sharding_key
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from sprocket.remoting.bodies.stats import TopicOffset, TopicStatsTable
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping, TopicQueueMappingInfo
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from sprocket.static_topic.item_checks import find_item
from sprocket.static_topic.logical_queues import all_queues
from sprocket.static_topic.unfinished import is_unfinished

TOPIC: Final = "Orders"
BROKERS: Final = ("broker-a", "broker-b", "broker-c")
KEYS: Final = tuple(f"key-{number}" for number in range(9))
_STEPS: Final = 1500
_HEALING: Final = 6000


class Turn:
    """Awaited where another part of the run may go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class SimBroker:
    """A broker: what it has of the topic, and the messages (key, number) of each physical queue."""

    name: str
    config: TopicConfigAndQueueMapping | None = None
    queues: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    is_up: bool = True

    def store(self, told: TopicConfigAndQueueMapping) -> None:
        assert told.mapping_detail is not None
        check_detail(told.mapping_detail, TOPIC, self.name, told.write_queue_nums)
        old = None if self.config is None else self.config.mapping_detail
        attributes = {} if self.config is None else self.config.attributes
        mapping = merged(old, told.mapping_detail, force=False)
        self.config = msgspec.structs.replace(told, mapping_detail=mapping, attributes=attributes)

    def queue(self, number: int) -> list[tuple[str, int]]:
        return self.queues.setdefault(number, [])


class SimAdmin:
    """The requests of `AdminClient` that moves need; each may find its broker down."""

    def __init__(self, brokers: dict[str, SimBroker]) -> None:
        self._brokers = brokers

    async def _at(self, address: str) -> SimBroker:
        await Turn()
        broker = self._brokers[address]
        if not broker.is_up:
            raise AdminError(f"{address} is down")
        return broker

    async def cluster_info(self) -> ClusterInfo:
        members = {name: BrokerData("c", name, {0: name}) for name in self._brokers}
        return ClusterInfo(members, {"c": list(members)})

    async def topic_config(self, address: str, topic: str) -> TopicConfigAndQueueMapping | None:
        return deepcopy((await self._at(address)).config)

    async def create_static_topic(
        self, address: str, config: TopicConfigAndQueueMapping, *, force: bool = False
    ) -> None:
        try:
            (await self._at(address)).store(deepcopy(config))
        except AdminError:
            raise
        except SprocketError as error:
            raise AdminError(str(error)) from None
        await Turn()  # the response may be lost with the tool

    async def broker_topic_stats(self, address: str, topic: str) -> TopicStatsTable:
        broker = await self._at(address)
        assert broker.config is not None
        ends = {number: len(broker.queue(number)) for number in range(broker.config.write_queue_nums)}
        table = {MessageQueue(topic, address, each): TopicOffset(0, end, 1) for each, end in ends.items()}
        return TopicStatsTable(table)

    async def ask_header(
        self,
        address: str,
        code: RequestCode,
        kind: type[GetMaxOffsetResponseHeader],
        header: GetMaxOffsetRequestHeader,
    ) -> GetMaxOffsetResponseHeader:
        return kind(offset=len((await self._at(address)).queue(header.queue_id)))

    async def end_of_queue(self, broker: str, topic: str, queue_id: int, *, written: bool = False) -> int:
        return await AdminClient.end_of_queue(cast(AdminClient, self), broker, topic, queue_id, written=written)


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.problems: list[str] = []
        self.faults: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.brokers = {name: SimBroker(name) for name in BROKERS}
        self.now_ms = 1
        self.admin = cast(AdminClient, self._make_admin())
        self.topics = StaticTopics(self.admin, wall_ms=lambda: self.now_ms, random=lambda: self.random.getrandbits(9))
        self._work: Coroutine[Any, Any, object] | None = None
        self._next = dict.fromkeys(KEYS, 0)  # to send
        self._read = dict.fromkeys(KEYS, 0)
        self._offsets: Counter[int] = Counter()
        self._routes: list[tuple[TopicRouteData, TopicRoute]] = []
        self._known: Counter[str] = Counter()  # position of each client's route
        # In an inexact move two brokers lead a queue: then clients must not have routes from before the last move.
        self._exact = seed % 2 == 0
        self._floor = 0
        self._oldest = 40  # how many routes ago a client's is at most

    def _make_admin(self) -> SimAdmin:
        return SimAdmin(self.brokers)

    def report(self) -> str:
        """What gives it again."""
        problems = "\n".join(self.problems)
        return f"seed {self.seed}\n{problems}\nAgain: python -m tests.sim.moves.soak --first {self.seed} --seeds 1"

    def play(self) -> "Run":
        """Make the topic, disturb everything, heal, and check."""
        self._drive(self._made())
        for _ in range(_STEPS):
            self._step(self.random.choice((self._operate, self._operate, self._send, self._pull, self._disturb)))
        for broker in self.brokers.values():
            broker.is_up = True
        self._work = None
        self._finish()
        for _ in range(_HEALING):
            self._step(self._pull)
            if not self._missing():
                break
        if missing := self._missing():
            self.problems.append(f"not read, sent: {missing}")
        configs = {name: each.config for name, each in self.brokers.items() if each.config is not None}
        self._check_brokers(configs)
        return self

    def _check_brokers(self, configs: dict[str, TopicConfigAndQueueMapping]) -> None:
        """Note a problem if brokers differ after the last change."""
        if is_unfinished(TOPIC, configs) or len(all_queues(configs)) != 6:
            self.problems.append("the mappings differ after the last move")

    def _finish(self) -> None:
        """Bring what was stopped to its end."""
        self._drive(self.topics.finish(TOPIC))

    def _missing(self) -> dict[str, tuple[int, int]]:
        """Return the next numbers to read and to send of keys with acknowledged messages that were not read."""
        return {key: (number, self._next[key]) for key, number in self._read.items() if number < self._next[key]}

    async def _made(self) -> None:
        await self.topics.create(TOPIC, await self.topics.creation(TOPIC, 6, BROKERS, {}))

    def _drive(self, work: Coroutine[Any, Any, object]) -> None:
        """Run to the end, without faults."""
        try:
            while True:
                work.send(None)
        except StopIteration:
            pass

    def _step(self, part: Callable[[], None]) -> None:
        self.now_ms += self.random.randint(0, 300)
        part()

    # Operator

    async def _change(self) -> None:
        exact = self._exact
        broker = self.random.choice(BROKERS)
        await self.topics.finish(TOPIC, exact=exact)
        if self.random.random() < 0.5:
            await self.topics.drain(TOPIC, broker, [name for name in BROKERS if name != broker], exact=exact)
        else:
            await self.topics.join(TOPIC, broker, exact=exact)

    def _operate(self) -> None:
        if self._work is None:
            self._work = self._change()
            self._floor = self._floor if self._exact else len(self._routes)
        try:
            self._work.send(None)
        except StopIteration:
            self.answers["moved"] += 1
            self._work = None
        except AdminError:
            self.answers["failed"] += 1
            self._work = None

    def _disturb(self) -> None:
        chance = self.random.random()
        if chance < 0.03 and self._work is not None:
            self._work.close()
            self._work = None
            self.faults["tool"] += 1
        elif chance < 0.10:
            self.random.choice(list(self.brokers.values())).is_up = False
            self.faults["broker"] += 1
        elif chance < 0.4:
            for broker in self.brokers.values():
                broker.is_up = True

    # Clients

    def _route(self, client: str) -> TopicRoute:
        """Return the route of a client: an older one perhaps, but none from before its last one."""
        return self._routes[self._shown_to(client)][1]

    def _shown_to(self, client: str) -> int:
        """Return the position of the route that a client gets now."""
        infos: dict[str, TopicQueueMappingInfo] = {}
        queues = []
        for name, broker in self.brokers.items():
            if broker.config is not None:
                config = broker.config
                queues.append(QueueData(name, config.read_queue_nums, config.write_queue_nums, 6))
                if config.mapping_detail is not None:
                    infos[name] = config.mapping_detail.info()
        members = [BrokerData("c", name, {0: name}) for name in BROKERS]
        data = TopicRouteData(None, queues, members, {}, infos)
        self._routes.append((data, topic_route(TOPIC, data)))
        newest = len(self._routes) - 1
        self._known[client] = self.random.randint(
            max(self._known[client], min(self._floor, newest), newest - self._oldest), newest
        )
        return self._known[client]

    def _send(self) -> None:
        key = self.random.choice(KEYS)
        route = self._route(key)
        queue = by_sharding_key(route, key)
        broker = self.brokers.get(route.broker_of(queue))
        if broker is None or not broker.is_up or broker.config is None or broker.config.mapping_detail is None:
            return
        items = led_items(broker.config.mapping_detail, queue.queue_id)
        if isinstance(items, Refused):
            self.answers["not leader"] += 1
            return
        broker.queue(items[-1].queue_id).append((key, self._next[key]))
        if self.random.random() < 0.9:  # otherwise the response is lost, and the message is sent again
            self._next[key] += 1

    def _pull(self) -> None:
        route = self._route("consumer")
        number = self.random.choice(route.subscribe).queue_id
        leader = self.brokers.get(route.leaders.get(number, "") if route.leaders else "")
        if leader is None or not leader.is_up or leader.config is None or leader.config.mapping_detail is None:
            return
        items = led_items(leader.config.mapping_detail, number)
        if isinstance(items, Refused):
            return
        offset = self._offsets[number]
        current = find_item(items, offset)
        if current is None or not self.brokers[current.bname].is_up:
            return
        messages, begin = self.brokers[current.bname].queue(current.queue_id), current.physical(offset)
        found = messages[begin : begin + 4] if 0 <= begin < len(messages) else []
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        shown = logical_offsets(items, current, begin, Offsets(code, begin + len(found), 0, len(messages)))
        if shown.next_begin < offset:
            self.problems.append(f"queue {number}: after offset {offset} comes {shown.next_begin}")
        self._note_read(found)
        self._offsets[number] = shown.next_begin

    def _note_read(self, found: Sequence[tuple[str, int]]) -> None:
        for key, value in found:
            if value > self._read[key]:
                self.problems.append(f"{key}: {value} came before {self._read[key]}")
            self._read[key] = max(self._read[key], value + 1)
