"""Routes of topics: queried once, cached, refreshed."""

import asyncio

import pytest

from broker.out import topic_routes
from broker.out.topic_routes import Queues, TopicRoutes
from sprocket.client.errors import NameServerUnreachable, TopicNotFound
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.clock import ManualClock


class Source:
    """A name server: queues of each topic on broker-a and broker-b."""

    def __init__(self) -> None:
        self.queues: dict[str, int] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def topic_route(self, topic: str) -> TopicRouteData:
        self.asked.append(topic)
        await self.may_answer.wait()
        if self.is_down:
            raise NameServerUnreachable("down")
        if topic not in self.queues:
            raise TopicNotFound(topic, "")
        count = self.queues[topic]
        return TopicRouteData(
            queue_datas=[QueueData("broker-b", count, count, 4, 0), QueueData("broker-a", 1, 1, 2, 0)],
            broker_datas=[BrokerData("c", "broker-b", {0: "127.0.0.1:1"}), BrokerData("c", "broker-a", {})],
        )


def nothing(topic: str) -> Queues | None:
    return None


def on_b(topic: str, count: int) -> Queues:
    return tuple(MessageQueue(topic, "broker-b", index) for index in range(count))


async def test_a_topic_is_asked_for_once_and_only_its_readable_queues_count() -> None:
    source = Source()
    source.queues["T"] = 2
    routes = TopicRoutes(source, nothing, ManualClock())
    assert routes.known("T") is None
    assert await routes.find("T") == on_b("T", 2)
    assert await routes.find("T") == routes.known("T") == on_b("T", 2)
    assert source.asked == ["T"]


async def test_all_who_ask_at_a_time_share_one_question_and_who_gives_up_does_not_end_it() -> None:
    source = Source()
    source.queues["T"] = 1
    source.may_answer.clear()
    routes = TopicRoutes(source, nothing, ManualClock())
    asking = [asyncio.create_task(routes.find("T")) for _ in range(3)]
    await asyncio.sleep(0)
    asking.pop().cancel()
    await asyncio.sleep(0)
    source.may_answer.set()
    assert await asyncio.gather(*asking) == [on_b("T", 1)] * 2
    assert source.asked == ["T"]


async def test_a_refresh_takes_over_what_changed_and_forgets_what_is_gone() -> None:
    source = Source()
    source.queues = {"T": 1, "U": 1, "%RETRY%G": 1}
    routes = TopicRoutes(source, nothing, ManualClock())
    for topic in source.queues:
        await routes.find(topic)
    source.queues = {"T": 3}
    await routes.refresh()
    assert routes.known("T") == on_b("T", 3)
    assert routes.known("U") is None
    assert routes.known("%RETRY%G") == on_b("%RETRY%G", 1)


async def test_what_is_known_stays_while_name_servers_are_down() -> None:
    source = Source()
    source.queues = {"T": 1, "V": 1}
    routes = TopicRoutes(source, nothing, ManualClock())
    await routes.find("T")
    await routes.find("V")
    source.is_down = True
    await routes.refresh()
    assert source.asked == ["T", "V", "T"], "it waits for no answer once for each topic"
    assert routes.known("T") == on_b("T", 1)
    assert await routes.find("U") is None
    source.is_down = False
    source.queues["U"] = 1
    assert await routes.find("U") == on_b("U", 1)


async def test_a_topic_that_nobody_asks_for_is_not_asked_about_for_ever() -> None:
    source, clock = Source(), ManualClock()
    source.queues = {"T": 1, "U": 1}
    routes = TopicRoutes(source, nothing, clock)
    await routes.find("T")
    await routes.find("U")
    clock.advance(200)
    routes.known("U")
    clock.advance(200)
    await routes.refresh()
    assert source.asked == ["T", "U", "U"]
    assert len(routes) == 1


async def test_no_more_topics_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_routes, "_MAX_TOPICS", 2)
    source = Source()
    source.queues = {"T": 1, "U": 1, "V": 1}
    routes = TopicRoutes(source, nothing, ManualClock())
    for topic in ("T", "U", "T", "V"):
        await routes.find(topic)
    assert routes.known("U") is None
    assert routes.known("T") is not None
    assert len(routes) == 2


async def test_a_broker_without_name_servers_is_all_there_is() -> None:
    routes = TopicRoutes(None, lambda topic: on_b(topic, 2) if topic == "T" else None, ManualClock())
    assert await routes.find("T") == routes.known("T") == on_b("T", 2)
    assert await routes.find("U") is None
    await routes.refresh()
