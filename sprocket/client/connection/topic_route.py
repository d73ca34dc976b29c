"""A topic's route as a client uses it: queues to send to, queues to read, and addresses of brokers.

A static topic has logical queues, whose broker name is `LOGICAL_BROKER`; the route says which broker leads each.

Source: RocketMQ 5.3.3, `MQClientInstance.topicRouteData2TopicPublishInfo`, `topicRouteData2TopicSubscribeInfo`,
`findBrokerAddressInPublish`, `findBrokerAddressInSubscribe`; `ClientMetadata.topicRouteData2EndpointsForStaticTopic`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from sprocket.common import limits
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import MASTER_ID, TopicRouteData
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, NO_BROKER, SCOPE_GLOBAL

_MAX_DIGITS = len(str(limits.MAX_TOPIC_QUEUES))


@dataclass(frozen=True)
class TopicRoute:
    """Route of one topic.  `publish` has the order that sharding keys use; `subscribe` is sorted.

    `rotation` has the queues of `publish` in the order of sends: one queue of each broker in turn.  Logical queues that
    no broker leads are not in it; `publish` has them, so that keys stay with their queues.
    `unwritable` has the reason of each broker without a writable queue.  `leaders` has, for a static topic, the broker
    that leads each logical queue, and `physical` the queues that its brokers read; other topics have neither.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    broker_addresses: dict[str, dict[int, str]] = field(default_factory=dict)
    unwritable: tuple[str, ...] = ()
    leaders: Mapping[int, str] | None = None
    physical: tuple[MessageQueue, ...] = ()
    rotation: tuple[MessageQueue, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        of_broker: dict[str, list[MessageQueue]] = {}
        for queue in self.publish:
            name = self.broker_of(queue)
            if self.leaders is None or MASTER_ID in self.broker_addresses.get(name, ()):
                of_broker.setdefault(name, []).append(queue)
        rounds = zip_longest(*of_broker.values())
        object.__setattr__(self, "rotation", tuple(queue for turn in rounds for queue in turn if queue is not None))

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker that serves `queue`; `NO_BROKER` for a logical queue that nobody leads."""
        if queue.broker_name != LOGICAL_BROKER:
            return queue.broker_name
        return NO_BROKER if self.leaders is None else self.leaders.get(queue.queue_id, NO_BROKER)

    @property
    def popped(self) -> tuple[MessageQueue, ...]:
        """The queues that pops read, sorted.

        Those of a static topic are physical: a broker keeps the messages of a queue that has moved on.
        """
        return self.subscribe if self.leaders is None else self.physical

    def members(self) -> Iterable[tuple[str, int]]:
        """Name and id of every broker: masters and slaves."""
        return ((name, broker_id) for name, group in self.broker_addresses.items() for broker_id in group)


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return the route for `data`, a name server's response."""
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    logical, leaders = _logical_queues(topic, data) if data.topic_queue_mapping_by_broker else ((), None)
    is_static = leaders is not None and data.order_topic_conf is None
    publish = logical if is_static else tuple(_publish(topic, data, addresses))
    unwritable = () if publish else tuple(_unwritable(data, addresses))
    read = tuple(_subscribe(topic, data))
    if leaders is None:
        return TopicRoute(topic, publish, read, addresses, unwritable)
    return TopicRoute(topic, publish, logical, addresses, unwritable, leaders, read)


def default_topic_route(topic: str, data: TopicRouteData, queue_count: int) -> TopicRoute:
    """Return the route of a topic that brokers will create: that of TBW102 with at most `queue_count` queues each."""
    for queues in data.queue_datas:
        queues.read_queue_nums = queues.write_queue_nums = min(queue_count, queues.read_queue_nums)
    return topic_route(topic, data)


def _logical_queues(topic: str, data: TopicRouteData) -> tuple[tuple[MessageQueue, ...], dict[int, str]]:
    """Return the logical queues in the order of their ids, and the brokers that lead them.

    Of several brokers that say they lead a queue, that with the highest epoch does.
    """
    total = 0
    leaders: dict[int, str] = {}
    mappings = (data.topic_queue_mapping_by_broker or {}).values()
    for info in sorted(mappings, key=lambda info: info.epoch):
        if info.scope == SCOPE_GLOBAL and info.bname is not None:
            total = max(total, info.total_queues)
            numbers = [int(text) for text in info.curr_id_map or () if text.isdecimal() and len(text) <= _MAX_DIGITS]
            leaders |= dict.fromkeys(numbers, info.bname)
    queues = tuple(MessageQueue(topic, LOGICAL_BROKER, number) for number in range(total))
    return queues, {number: name for number, name in leaders.items() if number < total}


def _publish(topic: str, data: TopicRouteData, addresses: dict[str, dict[int, str]]) -> Iterable[MessageQueue]:
    if data.order_topic_conf:
        parts = [part.partition(":") for part in data.order_topic_conf.split(";")]
        counts = [(name, int(count or 0)) for name, _, count in parts]
        if sum(max(count, 0) for _, count in counts) > limits.MAX_ROUTE_QUEUES:
            raise ValueError(f"its order names more than {limits.MAX_ROUTE_QUEUES} queues")
        for name, count in counts:
            yield from (MessageQueue(topic, name, index) for index in range(count))
        return
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        if queues.perm & PERM_WRITE and MASTER_ID in addresses.get(queues.broker_name, ()):
            yield from (MessageQueue(topic, queues.broker_name, index) for index in range(queues.write_queue_nums))


def _unwritable(data: TopicRouteData, addresses: dict[str, dict[int, str]]) -> Iterable[str]:
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        name = queues.broker_name
        if not queues.perm & PERM_WRITE:
            yield f"{name} does not permit writing (perm {queues.perm})"
        elif MASTER_ID not in addresses.get(name, ()):
            yield f"the master of {name} is down or not registered"
        else:
            yield f"{name} has no write queue of the topic"


def _subscribe(topic: str, data: TopicRouteData) -> list[MessageQueue]:
    return sorted(
        MessageQueue(topic, queues.broker_name, index)
        for queues in data.queue_datas
        if queues.perm & PERM_READ
        for index in range(queues.read_queue_nums)
    )


def subscribe_address(addresses: dict[int, str] | None, broker_id: int, only_this: bool = False) -> tuple[str, int]:
    """Return address and id of the member of a broker group to read from; ``("", -1)`` if there is none.

    It is the wanted member, else the next slave, else any member unless `only_this`.
    """
    if addresses:
        wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        for candidate in wanted:
            if candidate in addresses:
                return addresses[candidate], candidate
        if not only_this:
            member = next(iter(addresses))
            return addresses[member], member
    return "", -1
