"""A run: a topic, plain or static, grows again and again while keys are sent; the tool and brokers stop at any request.

Some messages wait at their broker first, as delayed ones and those of transactions do; their order is that in which
they leave it.  Where they go is decided by `has_grown`.

The steps are those of `TopicGrowth`, and clients choose queues with `by_sharding_key`.  A consumer commits some time
after it has read, name servers lag, and a producer's route may be as old as the pause at the end of a growth allows.
Queues of a static topic move, too.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from broker.plan.table import Refused
from broker.topic import moved_queues
from broker.topic.attributes import sharding_queues
from broker.topic.logical_queue import led_items
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.topic_growth import Limits, TopicGrowth
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.send.queue_choice import by_sharding_key
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.bodies.stats import ConsumeStats, OffsetWrapper
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, TopicConfigAndQueueMapping
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from tests.sim.moves.run import BROKERS, KEYS, TOPIC, Run, SimAdmin, SimBroker, Turn

GROUP: Final = "g"
_FIRST_QUEUES: Final = 2
_MAX_QUEUES: Final = 9
_LIMITS: Final = Limits(max_lag=20, lag_s=20.0, pause_s=20.0, settle_s=6.0)


class GrowthAdmin(SimAdmin):
    """The requests of `AdminClient` that growth needs."""

    def __init__(self, brokers: dict[str, SimBroker], run: "GrowthRun") -> None:
        super().__init__(brokers)
        self._run = run

    async def create_topic(self, address: str, config: TopicConfig) -> None:
        broker = await self._at(address)
        attributes = {} if broker.config is None else dict(broker.config.attributes)
        for change, value in config.attributes.items():
            attributes.pop(change[1:], None)
            if change.startswith("+"):
                attributes[change[1:]] = value
        mapping = None if broker.config is None else broker.config.mapping_detail
        broker.config = TopicConfigAndQueueMapping(
            TOPIC, config.read_queue_nums, config.write_queue_nums, attributes=attributes, mapping_detail=mapping
        )
        await Turn()

    async def topic_route(self, topic: str) -> TopicRouteData:
        await Turn()
        return self._run.known_data("tool")

    async def groups_of_topic(self, topic: str) -> list[str]:
        await Turn()
        return [GROUP]

    async def consume_stats(self, group: str, topic: str) -> ConsumeStats[MessageQueue]:
        await Turn()
        if not all(broker.is_up for broker in self._brokers.values()):
            raise AdminError("a broker is down")
        committed = self._run.committed
        return ConsumeStats({queue: OffsetWrapper(0, offset, offset, 0) for queue, offset in committed.items()})

    async def kv_config(self, namespace: str, key: str) -> str:
        await Turn()
        return ""

    async def ask_name_servers(self, code: RequestCode, header: Any) -> dict[str, ReceivedResponse | AdminError]:
        await Turn()
        return {
            name: ReceivedResponse(code=int(ResponseCode.SUCCESS), body=dumps(self._run.known_data(name)))
            for name in ("namesrv-1", "namesrv-2")
        }


class GrowthRun(Run):
    """One seed; odd ones have a static topic."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._is_static = seed % 2 == 1
        self._exact = True
        self._oldest = 1000
        self._target = _FIRST_QUEUES
        self._at: Counter[MessageQueue] = Counter()
        # At each broker: messages that wait, with key, physical queue and INNER_SHARDING; keys of those to send again.
        self._waiting: dict[str, list[tuple[str, int, bytes]]] = {name: [] for name in BROKERS}
        self._late: dict[str, list[str]] = {name: [] for name in BROKERS}
        self.committed: Counter[MessageQueue] = Counter()
        self.growth = TopicGrowth(
            self.admin, self.topics, lambda _: None, monotonic=lambda: self.now_ms / 1000, pause=self._pause
        )

    def _make_admin(self) -> SimAdmin:
        return GrowthAdmin(self.brokers, self)

    def report(self) -> str:
        return super().report().replace("moves.soak", "moves.growth_soak")

    def known_data(self, client: str) -> TopicRouteData:
        """Return the route that a name server or a tool has."""
        return self._routes[self._shown_to(client)][0]

    async def _pause(self, seconds: float) -> None:
        until, begun = self.now_ms + seconds * 1000, len(self._routes)
        while self.now_ms < until:
            await Turn()
        if seconds >= _LIMITS.settle_s:
            self._floor = max(self._floor, begun)  # producers have asked for the route since

    async def _made(self) -> None:
        if self._is_static:
            await self.topics.create(TOPIC, await self.topics.creation(TOPIC, self._target, BROKERS, {}))
            return
        for name in BROKERS:
            await self.admin.create_topic(name, TopicConfig(TOPIC, self._target, self._target))

    # Operator

    async def _change(self) -> None:
        if self._is_static and self.random.random() < 0.3:
            await super()._change()
            return
        if self._target < _MAX_QUEUES and self.random.random() < 0.7 and self._is_done():
            self._target += 1
        await self.growth.grow(TOPIC, self._target, _LIMITS)
        self.answers["grown"] += 1

    def _is_done(self) -> bool:
        configs = [broker.config for broker in self.brokers.values() if broker.config is not None]
        return len({msgspec.json.encode(config.attributes) for config in configs}) == 1 and all(
            not config.attributes and self._queues_of(config) == self._target for config in configs
        )

    @staticmethod
    def _queues_of(config: TopicConfigAndQueueMapping) -> int:
        return config.write_queue_nums if config.mapping_detail is None else config.mapping_detail.total_queues

    def _finish(self) -> None:
        """Grow to the end; a consumer that reads too slowly lets it give up, and it is repeated."""
        self._drive(self.topics.finish(TOPIC))
        for _ in range(20):
            work = self.growth.grow(TOPIC, self._target, _LIMITS)
            try:
                while True:
                    work.send(None)
                    self._step(self._pull)
            except StopIteration:
                for _ in range(100):
                    self._step(self._leave)
                return
            except AdminError:
                self.answers["failed"] += 1
        self.problems.append("the topic does not grow to its end")

    def _check_brokers(self, configs: dict[str, TopicConfigAndQueueMapping]) -> None:
        if not self._is_done():
            self.problems.append(f"brokers differ, or are not done: {configs}")

    # Clients

    def _place_of(self, client: str, key: str) -> tuple[SimBroker, int, TopicRoute, MessageQueue] | None:
        """Return broker and physical queue that take a message of a client now, by its route; None if none does."""
        route = self._route(client)
        queue = by_sharding_key(route, key)
        broker = self.brokers.get(route.broker_of(queue))
        if broker is None or not broker.is_up or broker.config is None:
            return None
        number: int | None = queue.queue_id
        if broker.config.mapping_detail is not None:
            items = led_items(broker.config.mapping_detail, queue.queue_id)
            number = None if isinstance(items, Refused) else items[-1].queue_id
        expected = sharding_queues(broker.config.attributes)
        if number is None or expected not in (None, len(route.publish)):
            self.answers["refused"] += 1
            self._known[client] = len(self._routes) - 1  # the client asks for the route
            return None
        return broker, number, route, queue

    def _leave(self) -> None:
        """Let a message that waits go to its queue, or be sent again by its broker."""
        name = self.random.choice(BROKERS)
        broker, waiting, late = self.brokers[name], self._waiting[name], self._late[name]
        if not broker.is_up or broker.config is None:
            return
        if late and self.random.random() < 0.5:
            target = self._place_of(name, late[0])
            if target is not None:
                key = late.pop(0)
                target[0].queue(target[1]).append((key, self._next[key]))
                self._next[key] += 1
                self.answers["late"] += 1
        elif waiting:
            key, number, sharding = waiting.pop(self.random.randrange(len(waiting)))
            detail = broker.config.mapping_detail
            place = (TOPIC, number)
            if detail is not None:
                place = moved_queues.present_place({TOPIC: detail}, TOPIC, number)
            if moved_queues.has_grown(sharding, broker.config, detail) or place[0] != TOPIC:
                late.append(key)
            else:
                broker.queue(place[1]).append((key, self._next[key]))
                self._next[key] += 1

    def _send(self) -> None:
        if self.random.random() < 0.3:
            self._leave()
            return
        key = self.random.choice(KEYS)
        target = self._place_of(key, key)
        if target is None:
            return
        broker, number, route, queue = target
        if self.random.random() < 0.2 and broker.config is not None:
            count = moved_queues.key_queues(broker.config, broker.config.mapping_detail)
            self._waiting[broker.name].append((key, number, b"hash %d" % count))
            return
        # With auto_batch, keys that chose the queue from as many queues travel together, and are refused together.
        others = [each for each in KEYS if each != key and by_sharding_key(route, each) == queue]
        is_batch = self.random.random() < 0.3 and all(self._known[each] <= self._known[key] for each in others)
        is_answered = self.random.random() < 0.9  # otherwise the messages are sent again
        for each in (key, *others) if is_batch else (key,):
            broker.queue(number).append((each, self._next[each]))
            self._next[each] += is_answered
            self._known[each] = self._known[key]

    def _pull(self) -> None:
        if self.random.random() < 0.3:
            self.committed.update(self._at - self.committed)
        if self._is_static:
            super()._pull()
            self._at = Counter({MessageQueue(TOPIC, LOGICAL_BROKER, each): at for each, at in self._offsets.items()})
            return
        queue = self.random.choice(self._route("consumer").subscribe)
        broker = self.brokers[queue.broker_name]
        if broker.is_up:
            found = broker.queue(queue.queue_id)[self._at[queue] : self._at[queue] + 4]
            self._note_read(found)
            self._at[queue] += len(found)
