"""Static topics over the wire: the order of the steps, repeats after a stop at any step, and figures of both kinds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, TopicConfigAndQueueMapping
from sprocket.remoting.codes import RequestCode
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.plan import TopicRemappingDetailWrapper
from sprocket.static_topic.plan_file import plan_bytes, read_plan
from tests.client.admin.static_brokers import StaticCluster, static_cluster

NAMES: Final = ("broker-a", "broker-b", "broker-c")
CREATE: Final = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
STATS: Final = RequestCode.GET_TOPIC_STATS_INFO


class Site:
    """A cluster, and an administrator whose clock moves a second with each look."""

    def __init__(self, cluster: StaticCluster, admin: AdminClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self._now_ms = 1_700_000_000_000
        self.topics = StaticTopics(admin, wall_ms=self._wall_ms, random=lambda: 0)

    def _wall_ms(self) -> int:
        self._now_ms += 1_000
        return self._now_ms

    async def create(self, count: int, *targets: str) -> TopicRemappingDetailWrapper:
        plan = await self.topics.creation("t", count, targets, await self.topics.configs("t"))
        await self.topics.create("t", plan)
        return plan

    async def remapping(self, *targets: str) -> TopicRemappingDetailWrapper:
        return await self.topics.remapping("t", targets, await self.topics.configs("t"))


@asynccontextmanager
async def site(*names: str) -> AsyncIterator[Site]:
    async with static_cluster(*(names or NAMES)) as cluster, AdminClient(cluster.name_server.address) as admin:
        yield Site(cluster, admin)


async def test_every_broker_of_the_cluster_learns_a_new_topic() -> None:
    async with site() as here:
        plan = await here.create(4, "broker-a", "broker-b")
        stored = await here.topics.configs("t")
        assert set(stored) == set(NAMES)
        assert {config.mapping_detail.epoch for config in stored.values() if config.mapping_detail} == {plan.epoch}
        assert sorted(here.cluster.leaders("t").values()) == ["broker-a"] * 2 + ["broker-b"] * 2
        assert [config.write_queue_nums for config in stored.values()] == [2, 2, 0]


async def test_a_topic_grows_on_the_brokers_that_are_named_and_those_that_have_it() -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        await here.create(4, "broker-b")
        assert here.cluster.leaders("t") == {0: "broker-a", 1: "broker-a", 2: "broker-b", 3: "broker-b"}
        with pytest.raises(MappingError, match="can only grow"):
            await here.create(4, "broker-a")


async def test_queues_move_in_the_order_of_rocketmq() -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        for broker in here.cluster.brokers.values():
            broker.sent = 12_345
        plan = await here.remapping("broker-b")
        here.cluster.asked.clear()
        await here.topics.remap("t", plan)
        assert [(asked.broker, asked.code, asked.undecided) for asked in here.cluster.asked] == [
            ("broker-b", CREATE, ("0", "1")),  # the new leader may be written
            ("broker-a", CREATE, ("0", "1")),  # the old one not any more
            ("broker-a", STATS, ()),  # where it ended
            ("broker-b", CREATE, ()),  # the new leader learns its offsets
            ("broker-a", CREATE, ()),  # the old one learns them, too
            ("broker-c", CREATE, ()),  # the others learn the epoch
        ]
        items = here.cluster.brokers["broker-b"].items("t", 0)
        assert [(item.bname, item.gen, item.logic_offset) for item in items] == [
            ("broker-a", 0, 0),
            ("broker-b", 1, 20_000),
        ]


async def test_an_exact_move_ends_the_old_leaders_first_and_leaves_no_gap() -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        here.cluster.brokers["broker-a"].sent = 12_345
        here.cluster.asked.clear()
        assert await here.topics.drain("t", "broker-a", ["broker-b"], exact=True) == 2
        assert [(asked.broker, asked.code, asked.undecided) for asked in here.cluster.asked] == [
            ("broker-a", CREATE, ("0", "1")),  # the old leader may not be written any more
            ("broker-a", RequestCode.GET_MAX_OFFSET, ()),  # where its queues ended, with what waits for its flush
            ("broker-a", RequestCode.GET_MAX_OFFSET, ()),
            ("broker-b", CREATE, ()),  # the new leader may be written from there on
            ("broker-a", CREATE, ()),
            ("broker-c", CREATE, ()),
        ]
        items = here.cluster.brokers["broker-b"].items("t", 0)
        assert [item.logic_offset for item in items] == [0, 12_348]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("taken", range(7))
async def test_a_drain_that_stopped_anywhere_is_finished_without_its_file(taken: int, *, exact: bool) -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        assert not await here.topics.finish("t")
        here.cluster.asked.clear()
        here.cluster.fails_after = taken
        try:
            await here.topics.drain("t", "broker-a", ["broker-b"], exact=exact)
        except AdminError as error:
            assert "the test stops here" in str(error)
        here.cluster.fails_after = None
        assert await here.topics.finish("t", exact=exact) == (0 < taken < 6)
        await here.topics.drain("t", "broker-a", ["broker-b"], exact=exact)
        assert here.cluster.leaders("t") == {0: "broker-b", 1: "broker-b"}
        for number in range(2):
            offsets = [item.logic_offset for item in here.cluster.brokers["broker-b"].items("t", number)]
            assert offsets == [0, 3 if exact else 10_000]


async def test_a_broker_that_joins_gets_its_share_and_one_that_was_drained_is_trimmed() -> None:
    async with site() as here:
        await here.create(6, "broker-a", "broker-b")
        assert await here.topics.join("t", "broker-c") == 2
        assert await here.topics.join("t", "broker-c") == 0
        assert await here.topics.drain("t", "broker-a", ["broker-b", "broker-c"]) == 2
        await here.topics.trim("t", "broker-a")
        for name in ("broker-b", "broker-c"):
            for number in range(6):
                assert all(item.bname != "broker-a" for item in here.cluster.brokers[name].items("t", number))


async def test_a_queue_moves_there_and_back_and_further() -> None:
    async with site() as here:
        await here.create(3, "broker-a")
        for targets in (["broker-b"], ["broker-a"], ["broker-c", "broker-a"], ["broker-b", "broker-c"]):
            await here.topics.remap("t", await here.remapping(*targets))
            assert set(here.cluster.leaders("t").values()) == set(targets)
        for number, leader in here.cluster.leaders("t").items():
            offsets = [item.logic_offset for item in here.cluster.brokers[leader].items("t", number)]
            assert offsets == [each * 10_000 for each in range(len(offsets))] and len(offsets) >= 4


@pytest.mark.parametrize("taken", range(6))  # of the six requests of this plan
async def test_a_move_that_stopped_anywhere_can_be_repeated(taken: int) -> None:
    async with site() as here:
        await here.create(4, "broker-a", "broker-b")
        file = plan_bytes(await here.remapping("broker-c"))
        brokers = here.cluster.brokers
        here.cluster.asked.clear()
        here.cluster.fails_after = taken
        with pytest.raises(AdminError, match="the test stops here"):
            await here.topics.remap("t", read_plan(file))
        before = {name: broker.topics["t"].mapping_detail for name, broker in brokers.items()}
        assert any(detail for detail in before.values())
        here.cluster.fails_after = None
        brokers["broker-c"].sent = 9_000  # clients have sent to the new leader meanwhile
        await here.topics.remap("t", read_plan(file))
        assert set(here.cluster.leaders("t").values()) == {"broker-c"}
        for number in range(4):
            offsets = [item.logic_offset for item in brokers["broker-c"].items("t", number)]
            assert offsets == [0, 10_000]
        await here.topics.remap("t", read_plan(file))  # a third time changes nothing
        await here.remapping("broker-a")  # and the next change is possible


async def test_an_offset_that_a_broker_knows_is_not_decided_again() -> None:
    async with site() as here:
        await here.create(1, "broker-a")
        plan = await here.remapping("broker-b")
        await here.topics.remap("t", plan)
        here.cluster.brokers["broker-a"].sent = 50_000  # as if it had taken messages after its end
        await here.topics.remap("t", plan)
        assert here.cluster.brokers["broker-b"].items("t", 0)[-1].logic_offset == 10_000


async def test_after_a_stop_other_changes_are_refused_with_what_to_do() -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        plan = await here.remapping("broker-b")
        here.cluster.asked.clear()
        here.cluster.fails_after = 1
        with pytest.raises(AdminError):
            await here.topics.remap("t", plan)
        here.cluster.fails_after = None
        with pytest.raises(MappingError, match=r"repeat it with -mf and its file t-EPOCH\.after"):
            await here.remapping("broker-c")


async def test_a_plan_that_moves_queues_is_not_carried_out_as_a_creation() -> None:
    async with site() as here:
        await here.create(2, "broker-a")
        plan = await here.remapping("broker-b")
        here.cluster.asked.clear()
        with pytest.raises(MappingError, match="carry it out with remappingStaticTopic"):
            await here.topics.create("t", plan)
        assert here.cluster.asked == []


async def test_an_old_plan_does_not_overwrite_a_newer_one() -> None:
    async with site() as here:
        first = await here.create(2, "broker-a")
        await here.create(4, "broker-a")
        with pytest.raises(AdminError, match="is below"):
            await here.topics.create("t", first)
        await here.topics.create("t", first, force=True)
        assert len(here.cluster.leaders("t")) == 2


async def test_a_cluster_or_broker_that_is_not_there_is_named() -> None:
    async with site() as here:
        assert await here.topics.targets([], ["c"]) == list(NAMES)
        assert await here.topics.targets(["broker-b"], []) == ["broker-b"]
        with pytest.raises(AdminError, match="cluster x is not known; known are: c"):
            await here.topics.targets([], ["x"])
        with pytest.raises(AdminError, match="broker broker-x has no master that is registered"):
            await here.topics.targets(["broker-x"], [])


async def test_a_plain_topic_of_that_name_is_left_alone() -> None:
    async with site() as here:
        here.cluster.brokers["broker-a"].topics["t"] = TopicConfigAndQueueMapping("t")
        with pytest.raises(MappingError, match="topic t is not static on broker broker-a: choose another name"):
            await here.create(2, "broker-b")
        assert here.cluster.asked == []


async def _moved(here: Site) -> None:
    await here.create(1, "broker-a")
    here.cluster.brokers["broker-a"].sent = 40
    await here.topics.remap("t", await here.remapping("broker-b"))
    here.cluster.brokers["broker-b"].sent = 5


async def test_figures_of_a_topic_have_its_logical_queues_beside_the_physical_ones() -> None:
    async with site("broker-a", "broker-b") as here:
        await _moved(here)
        table = (await here.admin.topic_stats("t")).offset_table
        assert table == {
            MessageQueue("t", "broker-a", 0): TopicOffset(0, 40, 5),
            MessageQueue("t", "broker-b", 0): TopicOffset(0, 5, 5),
            MessageQueue("t", LOGICAL_BROKER, 0): TopicOffset(0, 10_005, 5),
        }


async def test_the_progress_of_a_group_is_that_in_logical_queues() -> None:
    async with site("broker-a", "broker-b") as here:
        await _moved(here)
        here.cluster.brokers["broker-a"].consumed[0] = 30
        logical = MessageQueue("t", LOGICAL_BROKER, 0)
        assert (await here.admin.consume_stats("g", "t")).offset_table == {logical: OffsetWrapper(10_005, 30, 30, 5)}
        here.cluster.brokers["broker-b"].consumed[0] = 2
        (progress,) = (await here.admin.consume_stats("g", "t")).offset_table.values()
        assert progress.consumer_offset == 10_002


async def test_tools_read_logical_queues_at_their_leaders() -> None:
    async with site("broker-a", "broker-b") as here:
        await here.create(2, "broker-a", "broker-b")
        queues = await MessageLookup(here.admin).queues("t")
        assert [(queue.broker_name, queue.queue_id) for queue, _ in queues] == [
            (LOGICAL_BROKER, 0),
            (LOGICAL_BROKER, 1),
        ]
        leaders = here.cluster.leaders("t")
        assert [address for _, address in queues] == [here.cluster.brokers[leaders[each]].address for each in (0, 1)]


async def test_commits_cannot_reset_a_group_in_logical_queues() -> None:
    async with site("broker-a", "broker-b") as here:
        await _moved(here)
        with pytest.raises(AdminError, match="topic t is static: brokers must reset its groups"):
            await GroupAdmin(here.admin).commit_to_time("t", "g", 1)


async def test_mappings_that_cannot_be_are_an_error_of_the_request() -> None:
    async with site("broker-a", "broker-b") as here:
        await _moved(here)
        here.cluster.brokers["broker-b"].items("t", 0)[0].gen = 9
        with pytest.raises(AdminError, match="the mappings of static topic t: gen must rise"):
            await here.admin.topic_stats("t")
