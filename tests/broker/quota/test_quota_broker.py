"""Quotas at a whole broker: how operators set them, and what clients get."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.quota.bucket import Bucket, Kind, Tally
from broker.server import Broker
from broker.upkeep.quota_upkeep import QuotaUpkeep
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody, QuotaUsageBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, encode
from tests.broker.insides import core_of, service_of
from tests.broker.lite import rig as lite_rig
from tests.broker.lite.rig import lite_broker
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker
from tests.clock import ManualClock
from tests.send_headers import client_batch, send_header

SUCCESS, REFUSED = ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL
PLAIN = {"properties": "UNIQ_KEY\x010A000001000000000000000000000001\x02"}


async def set_quota(client: TestClient, name: str, **limits: Any) -> None:
    await client.ask_well(RequestCode.SET_QUOTA, None, dumps(Quota(name, **limits)))


async def send(client: TestClient, topic: str = TOPIC, body: bytes = b"body", **fields: Any) -> int:
    return (await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, **PLAIN | fields), body)).code


def upkeep_of(broker: Broker) -> QuotaUpkeep:
    return service_of(broker, QuotaUpkeep)


@pytest.mark.code(RequestCode.SET_QUOTA, RequestCode.GET_ALL_QUOTAS)
async def test_a_quota_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await client.send()
        await set_quota(client, f"topic:{TOPIC}", messages_in=2)
        assert [await send(client) for _ in range(3)] == [SUCCESS, SUCCESS, REFUSED]
        assert broker.routes.refusals.by_reason == {Reason.QUOTA: 1}
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        answer = await client.ask_well(RequestCode.GET_ALL_QUOTAS)
        assert list(loads(bytes(answer.body), QuotaTableBody).quota_table) == [f"topic:{TOPIC}"]
        assert [await send(client) for _ in range(3)] == [SUCCESS, SUCCESS, REFUSED]


@pytest.mark.code(RequestCode.DELETE_QUOTA)
async def test_a_deleted_quota_holds_no_longer_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        await client.send()
        await set_quota(client, "address:127.0.0.1", messages_in=1)
        assert [await send(client) for _ in range(2)] == [SUCCESS, REFUSED]
        await client.ask_well(RequestCode.DELETE_QUOTA, None, b"address:127.0.0.1")
        assert await send(client) == SUCCESS
        for code, body, says in (
            (RequestCode.DELETE_QUOTA, b"topic:none", "there is no quota"),
            (RequestCode.SET_QUOTA, dumps(Quota("topic:a")), "sets no limit"),
            (RequestCode.SET_QUOTA, b"{", ""),
        ):
            refused = await client.ask(code, None, body)
            assert refused.code != SUCCESS and says in (refused.remark or "")


async def test_a_batch_counts_its_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await client.send()
        await set_quota(client, f"topic:{TOPIC}", messages_in=2)
        body = client_batch((0, b"one", b""), (0, b"two", b""), (0, b"three", b""))
        assert await send(client, body=body, batch=True) == SUCCESS
        assert await send(client) == REFUSED
        tallies = core_of(broker).quotas.tallies()
    assert tallies[f"topic:{TOPIC}", Kind.MESSAGES_IN].used == 3


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_send_that_waits_for_the_ids_of_the_log_is_charged_once(tmp_path: Path, is_batch: bool) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await client.send()
        await set_quota(client, f"topic:{TOPIC}", messages_in=3)
        await set_quota(client, "address:127.0.0.1", messages_in=3)
        own = encode({"UNIQ_KEY": "K1", IDEMPOTENCE_ID: "a"})
        body = client_batch((0, b"one", own.encode()), (0, b"two", b"")) if is_batch else b"one"
        assert not core_of(broker).ids.is_ready
        assert await send(client, body=body, batch=is_batch, **{} if is_batch else {"properties": own}) == SUCCESS
        assert core_of(broker).ids.is_ready
        used = {key: tally.used for key, tally in core_of(broker).quotas.tallies().items()}
    assert used[f"topic:{TOPIC}", Kind.MESSAGES_IN] == used["address:127.0.0.1", Kind.MESSAGES_IN] == 1 + is_batch


async def test_a_pull_over_its_quota_waits_and_is_then_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for _ in range(3):
            await client.send()
        await set_quota(client, f"topic:{TOPIC}", messages_out=20, burst_millis=1)
        answers = [await client.pull(sys_flag=6) for _ in range(2)]
        tally = core_of(broker).quotas.tallies()[f"topic:{TOPIC}", Kind.MESSAGES_OUT]
    assert [answer.code for answer in answers] == [SUCCESS, SUCCESS]
    assert (tally.used, tally.exceeded) == (6, 1)


def pop(poll_time: int) -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=32, invisible_time=60_000, poll_time=poll_time,
        born_time=0, init_mode=0, exp_type="TAG", exp="*", order=False,
    )  # fmt: skip


async def test_a_pop_over_its_quota_waits_and_is_then_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for _ in range(3):
            await client.send()
        await set_quota(client, "address:*", messages_out=20, burst_millis=1)
        first = await client.ask_well(RequestCode.POP_MESSAGE, pop(5000))
        for _ in range(2):
            await client.send()
        second = await client.ask_well(RequestCode.POP_MESSAGE, pop(5000))
        empty = await client.ask(RequestCode.POP_MESSAGE, pop(0))
        tally = core_of(broker).quotas.tallies()["address:*", Kind.MESSAGES_OUT]
    assert first.body and second.body
    assert empty.code == ResponseCode.POLLING_TIMEOUT
    assert tally.used == 5 and tally.exceeded >= 1


@pytest.mark.code(RequestCode.GET_QUOTA_USAGE)
async def test_operators_see_what_is_used_and_what_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await client.send()
        await set_quota(client, f"topic:{TOPIC}", messages_in=2)
        for _ in range(5):
            await send(client)
        clock.advance(1)
        upkeep_of(broker).look()
        answer = await client.ask_well(RequestCode.GET_QUOTA_USAGE)
        (use,) = loads(bytes(answer.body), QuotaUsageBody).uses
        values = {metric.name: dict(metric.read()) for metric in upkeep_of(broker).exported_metrics()}
    assert (use.quota, use.resource, use.kind, use.limit) == (f"topic:{TOPIC}", f"topic {TOPIC}", "messages_in", 2)
    assert (use.used_total, use.exceeded_total, use.rate, use.asked) == (2, 3, 2, 5)
    label = (f"topic:{TOPIC}", "messages_in")
    assert values["sprocket_quota_used_total"] == {label: 2}
    assert values["sprocket_quota_exceeded_total"] == {label: 3}
    assert values["sprocket_quota_limit"] == {label: 2}


async def test_a_topic_that_stores_its_quota_takes_no_more_or_drops_the_oldest(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(4):
            await client.send(queue_id=number % 2)
        await set_quota(client, f"topic:{TOPIC}", storage_bytes=100)
        upkeep_of(broker).look()
        refused = await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, **PLAIN), b"body")
        assert refused.code == REFUSED and "stored of topic Orders" in (refused.remark or "")
        await set_quota(client, f"topic:{TOPIC}", storage_bytes=600, drops_oldest=True)
        upkeep_of(broker).look()
        assert await send(client) == SUCCESS
        store = core_of(broker).store
        assert [store.min_offset(TOPIC, queue_id) for queue_id in range(2)] == [1, 1]


async def test_a_group_with_too_much_to_read_closes_its_topics_until_it_has_read_some(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for _ in range(3):
            await client.send()
        core = core_of(broker)
        core.groups.find(GROUP)
        core.offsets.commit(GROUP, TOPIC, 0, 0)
        await set_quota(client, f"group:{GROUP}", backlog_messages=3)
        upkeep_of(broker).look()
        assert await send(client) == REFUSED
        core.offsets.commit(GROUP, TOPIC, 0, 1)
        upkeep_of(broker).look()
        assert await send(client) == SUCCESS


async def test_many_quotas_are_listed_in_steps(tmp_path: Path) -> None:
    quotas = {f"topic:T{number}*": Quota(f"topic:T{number}*", storage_bytes=9) for number in range(300)}
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        core_of(broker).quotas.table.replace(QuotaTableBody(quotas))
        answer = await client.ask_well(RequestCode.GET_ALL_QUOTAS)
        assert loads(bytes(answer.body), QuotaTableBody).quota_table == quotas
        used = loads(bytes((await client.ask_well(RequestCode.GET_QUOTA_USAGE)).body), QuotaUsageBody)
        assert {use.quota for use in used.uses} == set(quotas)
        asked: Any = SimpleNamespace(access=None)
        upkeep = upkeep_of(broker)
        assert min(sum(1 for _ in steps) for steps in (upkeep.all_quotas(asked), upkeep.usage(asked))) > 3


async def test_all_quotas_of_a_name_hold_together(tmp_path: Path) -> None:
    topic, all_of_them = "shop|orders%Paid", {"messages_in": 9, "bytes_in": 9000, "requests": 9}
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        assert await send(client, topic) == SUCCESS
        for name in ("topic:*", "namespace:*", "tenant:shop", "address:*"):
            await set_quota(client, name, **all_of_them)
        await set_quota(client, "tenant:shop", **all_of_them | {"messages_in": 2})
        assert [await send(client, topic) for _ in range(3)] == [SUCCESS, SUCCESS, REFUSED]
        tallies = core_of(broker).quotas.tallies()
    assert tallies["namespace:*", Kind.BYTES_IN].used > tallies["namespace:*", Kind.MESSAGES_IN].used == 2


async def test_heartbeats_and_acknowledgements_are_counted_and_never_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await client.send()
        await set_quota(client, f"group:{GROUP}", requests=3)
        popped = await client.ask_well(RequestCode.POP_MESSAGE, pop(0))
        (message,) = decode_records(bytes(popped.body), MessageQueue(TOPIC, "", 0))
        for _ in range(4):
            await client.heartbeat("c1", TOPIC)
        fields = popped.ext_fields
        extra = " ".join((
            fields["startOffsetInfo"].split(" ")[2], fields["popTime"], fields["invisibleTime"], fields["reviveQid"],
            "0", "broker-a", "0", "0",
        ))  # fmt: skip
        assert message.queue_offset == 0
        header = AckMessageRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, extra_info=extra, offset=0)
        await client.ask_well(RequestCode.ACK_MESSAGE, header)
        tally = core_of(broker).quotas.tallies()[f"group:{GROUP}", Kind.REQUESTS]
    assert (tally.used, tally.exceeded) == (6, 3)


async def test_a_reply_over_its_quota_is_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        await client.send()
        await set_quota(client, "address:*", messages_in=1, burst_millis=1)
        answers = [
            await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, send_header(TOPIC, **PLAIN), b"reply") for _ in range(2)
        ]
    assert answers[0].code != REFUSED  # it names no requester
    assert (answers[1].code, answers[1].ext_fields["retryAfterMillis"]) == (REFUSED, "1000")


async def test_a_pop_of_lite_topics_over_its_quota_waits_and_is_then_served(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        await lite_rig.subscribe(client, "c1", "s1")
        await set_quota(client, f"group:{lite_rig.GROUP}", messages_out=20, burst_millis=1)
        for _ in range(3):
            await lite_rig.send_lite(client, "s1", b"first")
        assert len(await lite_rig.popped(client, "c1")) == 3
        await lite_rig.send_lite(client, "s1", b"second")
        tally = core_of(broker).quotas.tallies()[f"group:{lite_rig.GROUP}", Kind.MESSAGES_OUT]
        assert (tally.used, tally.exceeded) == (3, 0)
        assert await lite_rig.popped(client, "c1", poll_time=0) == []
        assert tally.exceeded == 1


async def test_a_flood_over_a_quota_is_read_slowly_and_its_connection_is_answered_in_the_end(tmp_path: Path) -> None:
    """Each refusal slows the connection by 1 ms; another one is served meanwhile."""
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        await client.send(topic="Other")
        await set_quota(client, f"topic:{TOPIC}", messages_in=1)
        other = TestClient(client.address)
        await other.send(topic="Other")
        codes = await asyncio.gather(*(send(client) for _ in range(501)))
        slow = asyncio.create_task(send(client))
        await other.send(topic="Other")
        assert not slow.done()
        await slow
        await other.close()
    assert codes.count(REFUSED) >= 490


async def test_refusals_of_one_quota_are_spaced_over_all_connections() -> None:
    clock = ManualClock()
    bucket = Bucket("topic Orders", Kind.MESSAGES_IN, 1, 1, clock, Tally())
    assert [round(bucket.slow_s() * 1000) for _ in range(3)] == [1, 2, 3]
    clock.advance(10)
    assert round(bucket.slow_s() * 1000) == 1
