"""Cleaning of mappings: oldest items without messages."""

from datetime import datetime
from pathlib import Path

from broker.out.other_brokers import OtherBrokers
from broker.server import Broker
from broker.upkeep.mapping_cleaning import MappingCleaning
from sprocket.remoting.codes import RequestCode
from tests.broker.insides import core_of, service_of
from tests.broker.rig import TOPIC, create
from tests.broker.static_topics.rig import A, B, Site, body, item, site
from tests.clock import ManualClock

LOGIC = 10_000


def items_of(broker: Broker, logical: int = 0) -> list[int]:
    """The generations of a logical queue's items on a broker."""
    detail = core_of(broker).mappings.get(TOPIC)
    assert detail is not None
    return [one.gen for one in detail.items(logical)]


async def clean(two: Site, name: str) -> None:
    await service_of(two.brokers[name], MappingCleaning).clean()


async def test_an_oldest_item_without_messages_is_removed_by_the_leader(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.remapped(LOGIC)
        await clean(two, A)
        assert items_of(two.brokers[A]) == [0, 1]  # it does not lead the queue
        await clean(two, B)
        assert items_of(two.brokers[B]) == [1]
        assert items_of(two.brokers[B], 1) == [0]
        await clean(two, B)
        assert items_of(two.brokers[B]) == [1]  # the last one stays


async def test_an_item_with_messages_stays(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.clients[A].send()
        await two.remapped(LOGIC)
        await clean(two, B)
        assert items_of(two.brokers[B]) == [0, 1]


async def test_an_item_of_a_silent_broker_stays(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.remapped(LOGIC)
        await two.brokers[A].stop()
        await clean(two, B)
        assert items_of(two.brokers[B]) == [0, 1]
        await two.brokers[A].start()


async def test_a_list_stays_when_its_queue_has_moved_on_twice(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.remapped(LOGIC)
        # For broker a, the queue went to broker c, which does not exist any more; broker b leads it.
        moved = [item(0, 0, A, 0), item(1, 0, "broker-c", LOGIC)]
        content = body(A, {0: moved}, epoch=2)
        await two.clients[A].ask_well(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create(force=True), content)
        await clean(two, A)
        assert items_of(two.brokers[A]) == [0, 1]


async def test_it_cleans_in_the_hours_of_delete_when(tmp_path: Path) -> None:
    clock = ManualClock()
    async with site(tmp_path, clock=clock, store={"delete_when": "03"}) as two:
        await two.created()
        await two.remapped(LOGIC)
        core = core_of(two.brokers[B])
        cleaning = MappingCleaning(core, OtherBrokers(core.client, [two.name_server], clock))
        while datetime.fromtimestamp(clock.wall_ms() / 1000).hour != 2:
            clock.advance(3600.0)
        await cleaning.clean_in_time()
        assert items_of(two.brokers[B]) == [0, 1]
        clock.advance(3600.0)
        await cleaning.clean_in_time()
        assert items_of(two.brokers[B]) == [1]
