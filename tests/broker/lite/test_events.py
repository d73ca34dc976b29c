"""Events of clients: each message reaches a client that pops, whatever the others do.

`Group` is a model of the handler: it pops one message of a lite topic at a time, and delivers the next one after the
acknowledgement.
"""

from collections import Counter
from collections.abc import Collection
from random import Random

import pytest

from broker.lite.events import AWAY_AFTER_S, LiteEvents
from broker.lite.lite_queues import LiteQueues
from broker.lite.subscriptions import ClientKey, LiteClient, LiteSubscriptions
from broker.subscription.group_attributes import LiteGroup, lite_group
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.lite import OffsetOption
from sprocket.remoting.message.lite_topics import lite_queue
from tests.broker.lite.fake_channel import FakeChannel
from tests.clock import ManualClock


def _how(**attributes: str) -> LiteGroup:
    found = lite_group({"lite.bind.topic": "P"} | {f"lite.{key.replace('_', '.')}": v for key, v in attributes.items()})
    assert found is not None
    return found


SHARED = _how()
WILD = _how(sub_wildcard="true")


class Group:
    """Registry and events of one group, with the messages, and clients that pop or hang in a held pop."""

    def __init__(self, clock: Clock, max_events: int = 4, how: LiteGroup = SHARED) -> None:
        self.how = how
        self.queues = LiteQueues()
        self.subscriptions = LiteSubscriptions(lambda: 1_000_000, clock, self)
        self.events = LiteEvents(self.subscriptions, self, clock, lambda _: max_events, self.queues.of_parent)
        self.ends: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.open: dict[str, str] = {}  # queue -> client with an unacknowledged message
        self.held: set[str] = set()
        self.delivered: Counter[tuple[str, int]] = Counter()
        self.by_client: Counter[str] = Counter()
        self.looks = 0

    # Requests

    def subscribe(self, client: str, *lites: str) -> None:
        key = ClientKey("G", client)
        queues = [lite_queue("P", lite) for lite in lites]
        if self.how.is_wildcard:
            self.subscriptions.replace(key, self.how, FakeChannel(1), queues)
        else:
            self.subscriptions.add(key, self.how, FakeChannel(1), queues, None)

    def unsubscribe(self, client: str, *lites: str) -> None:
        self.subscriptions.remove(ClientKey("G", client), self.how, [lite_queue("P", lite) for lite in lites])

    def leave(self, client: str) -> None:
        self.held.discard(client)
        for queue in [queue for queue, holder in self.open.items() if holder == client]:
            # The message becomes visible again.
            del self.open[queue]
            self.read[queue] -= 1
            self.delivered[queue, self.read[queue]] -= 1
            self.events.freed(queue, "G")
        self.subscriptions.leave(ClientKey("G", client))

    def store(self, *lites: str) -> None:
        queues = [lite_queue("P", lite) for lite in lites]
        for queue in queues:
            self.queues.arrived(queue, 1)
            self.ends[queue] += 1
        self.events.arrived(queues)

    def pop(self, client: str) -> bool:
        """Pop one message; without one the pop is held."""
        found = self.subscriptions.find("G", client)
        if found is None:
            return False
        while (queue := self.events.take(found)) is not None:
            self.looks += 1
            if queue not in self.open and self.read[queue] < self.ends[queue]:
                self.delivered[queue, self.read[queue]] += 1
                self.by_client[client] += 1
                self.read[queue] += 1
                self.open[queue] = client
                return True
        self.held.add(client)
        return False

    def acknowledge(self, client: str) -> None:
        for queue in [queue for queue, holder in self.open.items() if holder == client]:
            del self.open[queue]
            if self.read[queue] < self.ends[queue]:
                self.events.freed(queue, "G")

    # Held pops

    def waits(self, client: LiteClient) -> bool:
        return client.key.client_id in self.held

    def wake(self, client: LiteClient) -> None:
        if client.key.client_id in self.held:
            self.held.discard(client.key.client_id)
            self.pop(client.key.client_id)

    # The registry's listener

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        raise AssertionError

    def subscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        self.events.subscribed(client, queues)

    def unsubscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        self.events.unsubscribed(client, queues)

    def left(self, client: LiteClient) -> None:
        self.events.left(client)

    def evicted(self, client: LiteClient, queue: str) -> None:
        raise AssertionError

    def check(self) -> None:
        list(self.events.check())

    def drain(self, client: str) -> None:
        """Pop and acknowledge until nothing comes."""
        self.acknowledge(client)
        while self.pop(client) or client in self.open.values():
            self.acknowledge(client)


def test_a_message_goes_to_one_client_of_a_group_and_clients_take_turns() -> None:
    group = Group(ManualClock(), max_events=100)
    lites = [f"s{number}" for number in range(30)]
    for client in ("a", "b", "c"):
        group.subscribe(client, *lites)
        group.pop(client)
    group.store(*lites)
    for client in ("a", "b", "c"):
        group.drain(client)
    assert set(group.delivered.values()) == {1}
    assert group.by_client == {"a": 10, "b": 10, "c": 10}


def test_a_client_that_never_pops_starves_nobody() -> None:
    clock = ManualClock()
    group = Group(clock)
    lites = [f"s{number}" for number in range(200)]
    for number in range(20):
        group.subscribe(f"dead{number}", *lites)
    clock.advance(AWAY_AFTER_S + 1)
    group.subscribe("alive", *lites)
    group.store(*lites)
    group.drain("alive")  # without any check
    assert group.by_client == {"alive": 200}


def test_events_of_a_client_that_stopped_popping_are_given_to_others() -> None:
    clock = ManualClock()
    group = Group(clock)
    group.subscribe("a", "s1", "s2")
    group.pop("a")
    group.held.clear()  # its connection hangs
    group.store("s1", "s2")  # it is not known yet to be away
    group.subscribe("b", "s1", "s2")
    clock.advance(AWAY_AFTER_S + 1)
    group.pop("b")
    group.acknowledge("b")
    group.check()
    group.drain("b")
    assert group.by_client == {"b": 2}


def test_more_lite_topics_than_a_client_may_have_events_are_all_found() -> None:
    group = Group(ManualClock(), max_events=1)
    lites = [f"s{number}" for number in range(50)]
    group.subscribe("a", *lites)
    for _ in range(3):
        group.store(*lites)
    group.drain("a")
    assert sum(group.delivered.values()) == 150


def test_an_event_costs_the_same_beside_many_other_subscriptions() -> None:
    looks = []
    for others in (10, 1000):
        group = Group(ManualClock())
        for number in range(others):
            group.subscribe(f"other{number}", f"elsewhere{number}")
            group.pop(f"other{number}")
        group.subscribe("a", "s1")
        group.pop("a")
        group.looks = 0
        group.store("s1")
        looks.append(group.looks)
    assert looks == [1, 1]


def test_looking_again_finds_what_was_forgotten() -> None:
    group = Group(ManualClock())
    group.subscribe("a", "s1")
    group.pop("a")
    group.ends[lite_queue("P", "s1")] += 1  # nobody was told
    client = group.subscriptions.find("G", "a")
    assert client is not None
    group.events.look_again(client)
    assert group.by_client == {"a": 1}


@pytest.mark.parametrize("how", [SHARED, WILD], ids=["shared", "wildcard"])
@pytest.mark.parametrize("seed", range(150))
def test_every_message_is_delivered_once_as_long_as_one_client_pops(seed: int, how: LiteGroup) -> None:
    random, clock = Random(seed), ManualClock()
    group = Group(clock, max_events=random.choice([1, 2, 5]), how=how)
    clients = [f"c{number}" for number in range(random.randint(1, 5))]
    lites = [f"s{number}" for number in range(random.randint(1, 8))]
    group.subscribe("sure", *lites)
    for _ in range(random.randint(5, 120)):
        client = random.choice([*clients, "sure"])
        match random.randrange(9):
            case 0 | 1:
                group.store(*random.sample(lites, random.randint(1, len(lites))))
            case 2 if client != "sure":
                group.subscribe(client, *random.sample(lites, random.randint(1, len(lites))))
            case 3 if client != "sure" and not how.is_wildcard:
                group.unsubscribe(client, *random.sample(lites, random.randint(1, len(lites))))
            case 4 if client != "sure":
                group.leave(client)
            case 5:
                clock.advance(random.choice([1, 6, 20]))
            case 6:
                group.check()
            case 7:
                group.acknowledge(client)
            case _:
                group.pop(client)
    # All but one stop; their unacknowledged messages and held pops end, as with closed connections.
    for client in clients:
        if random.random() < 0.5:
            group.leave(client)
        else:
            group.acknowledge(client)
            group.held.discard(client)  # hangs
    clock.advance(AWAY_AFTER_S + 1)
    for _ in range(3):
        group.drain("sure")
        group.check()
        clock.advance(AWAY_AFTER_S + 1)
    group.drain("sure")
    for queue, end in group.ends.items():
        # A message that hangs with another client blocks its lite topic until its invisible time ends.
        if queue not in group.open:
            assert [group.delivered[queue, offset] for offset in range(end)] == [1] * end, queue
