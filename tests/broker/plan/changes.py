"""Random changes of everything that plans are made from."""

import random
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any, TypeVar

from broker.client.clients import Member
from broker.plan.planner import Planner, ServedPlan
from broker.plan.table import Refused
from broker.server import Broker
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig, TopicConfigTable
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from tests.broker.insides import core_of
from tests.broker.rig import TestClient, create
from tests.send_headers import send_header

TOPICS = ("Orders", "Bills", "%RETRY%CG", "New")
GROUPS = ("CG", "Other", "Late")
CONFIGURATION = (
    "filterDataCleanTimeSpan=1",
    "brokerPermission=2", *(3 * ["brokerPermission=6"]), "litePullMessageEnable=false", "litePullMessageEnable=true",
    "enablePropertyFilter=true", "enablePropertyFilter=false", "filterSupportRetry=true", "filterSupportRetry=false",
    "slaveReadEnable=true", "slaveReadEnable=false", "coldDataFlowControlEnable=true",
    "coldDataFlowControlEnable=false", "autoCreateSubscriptionGroup=false", "autoCreateSubscriptionGroup=true",
)  # fmt: skip


class Listener:
    """The connection of a consumer that has sent heartbeats."""

    def __init__(self, number: int) -> None:
        self.id, self.peer = (1 << 40) + number, ("10.0.0.1", number)

    def notify(self, *arguments: object) -> None: ...

    def close(self) -> None: ...


def mapping(topic: str, chance: random.Random) -> TopicQueueMappingDetail:
    """Return a mapping of two logical queues, of which broker a leads some."""
    detail = TopicQueueMappingDetail(topic=topic, total_queues=2, bname="a")
    detail.hosted_queues = {
        str(queue_id): [LogicQueueMappingItem(0, chance.randrange(3), chance.choice("aab"), 0)] for queue_id in range(2)
    }
    return detail


class Changes:
    """Random changes of everything that plans are made from, through what an operator or a consumer does."""

    def __init__(self, broker: Broker, client: TestClient, chance: random.Random) -> None:
        self.broker, self.client, self.chance = broker, client, chance
        self.listeners = [Listener(number) for number in range(3)]
        self.version = 0

    async def one(self) -> None:
        pick, broker = self.chance.choice, self.broker
        group, topic, queue_id = pick(GROUPS), pick(TOPICS), self.chance.randrange(3)
        steps: list[Callable[[], Any]] = [
            self.configure, self.configure, self.heartbeat, self.heartbeat, lambda: self.leave(group),
            lambda: self.topic(topic), lambda: self.group(group),
            lambda: broker.topics.delete(topic), lambda: broker.groups.delete(group),
            lambda: broker.groups.forbid(group, topic, pick((0, 4))), lambda: broker.groups.find(group),
            lambda: broker.offsets.reset(group, topic, queue_id, 1),
            lambda: broker.offsets.take_reset(group, topic, queue_id),
            lambda: broker.offsets.remove_topic(topic), lambda: broker.offsets.remove_group(group),
            lambda: broker.offsets.remove(group, topic), lambda: broker.offsets.clone("CG", group, topic),
            lambda: broker.store.delete_topic(topic), broker.filters.clean, lambda: broker.consumers.expire(0.0),
            lambda: self.replace(topic, group), lambda: self.map(topic), lambda: core_of(broker).mappings.delete(topic),
        ]  # fmt: skip
        pick(steps)()
        if self.chance.random() < 0.2:
            await self.send(topic, queue_id)

    def configure(self) -> None:
        self.broker.config.update(self.chance.choice(CONFIGURATION).encode())

    def heartbeat(self) -> None:
        pick, self.version = self.chance.choice, self.version + self.chance.randrange(2)
        listener: Any = pick(self.listeners)
        subscriptions = []
        for topic in self.chance.sample(TOPICS, 2):
            kind, text = pick((("TAG", "*"), ("TAG", "A || B"), ("SQL92", "a > 1"), ("SQL92", "a >"), ("TAG", "C")))
            codes = [java_hash_code(tag) for tag in ("A", "B", "C") if tag in text] if kind == "TAG" else []
            subscriptions.append(
                SubscriptionData(topic, text, code_set=codes, sub_version=self.version, expression_type=kind)
            )
        model = pick(("CLUSTERING", "CLUSTERING", "BROADCASTING"))
        data = ConsumerData(pick(GROUPS), "CONSUME_PASSIVELY", model, "", subscriptions)
        member = Member(listener, "client", "JAVA", 1, self.broker.clock.monotonic())
        self.broker.consumers.register(member, data, with_subscriptions=self.chance.random() < 0.9)

    def leave(self, group: str) -> None:
        listener: Any = self.chance.choice(self.listeners)
        if self.chance.random() < 0.5:
            self.broker.consumers.unregister(group, listener)
        else:
            list(self.broker.consumers.channel_closed(listener))

    def topic(self, topic: str) -> None:
        pick = self.chance.choice
        self.broker.topics.update(
            [TopicConfig(topic, pick((1, 2)), 2, pick((2, 6, 6, 6)), topic_sys_flag=pick((0, 1)))]
        )

    def group(self, group: str) -> None:
        pick = self.chance.choice
        config = SubscriptionGroupConfig(
            group, consume_enable=pick((True, True, False)), consume_broadcast_enable=pick((True, False)),
            broker_id=pick((0, 7)),
        )  # fmt: skip
        self.broker.groups.update([config])

    def map(self, topic: str) -> None:
        """Make a topic static."""
        core_of(self.broker).mappings.put(topic, mapping(topic, self.chance))

    def replace(self, topic: str, group: str) -> None:
        """As a slave replaces its tables by its master's."""
        version = DataVersion(self.version, self.chance.randrange(1 << 40))
        topics, groups = dict(self.broker.topics.by_name), dict(self.broker.groups.by_name)
        topics.pop(topic, None)
        groups.pop(group, None)
        forbidden = {"CG": {topic: 4}}
        self.broker.topics.replace(TopicConfigTable(topics, version))
        self.broker.groups.replace(SubscriptionGroupTable(groups, forbidden, copy(version)))

    async def send(self, topic: str, queue_id: int) -> None:
        """Make the queue, if the topic may be written."""
        found = self.broker.topics.get(topic)
        if found is not None and found.perm & 2 and queue_id < found.write_queue_nums:
            await self.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
            await self.client.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id=queue_id), b"body")
        elif self.chance.random() < 0.3:
            await self.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


Key = TypeVar("Key")
P = TypeVar("P", bound=ServedPlan)


async def plans_seen(
    planner: Planner[Key, P],
    keys: list[Key],
    change: Callable[[], Awaitable[None]],
    facts: Callable[[P | Refused], Any] = lambda plan: plan,
) -> set[object]:
    """Check after each of many changes that kept plans are those that would be made now, by what `facts` says of them.

    Return why the handler is needed, and the codes of refusals.
    """
    seen: set[object] = set()
    for step in range(150):
        for key in keys:
            kept = facts(planner.plan(key))  # a first request may create the group
            assert kept == facts(planner.new_plan(key)), (step, key)
            plan = planner.plan(key)
            seen.add(plan.code if isinstance(plan, Refused) else plan.needs_handler)
        await change()
    return seen
