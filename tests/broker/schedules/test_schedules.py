"""Schedules at a whole broker: what operators and applications ask, what is sent, and what a restart remembers."""

from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from broker.upkeep.schedule_service import RecurringMessages
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.bodies.schedule import CatchUp, Schedule, ScheduleState, ScheduleStatesBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.schedule import (
    PauseScheduleRequestHeader,
    ScheduleRequestHeader,
    SetScheduleRequestHeader,
)
from sprocket.remoting.message.properties import INNER_SCHEDULE, parse
from tests.broker.insides import core_of, periodic_of, service_of, work_now
from tests.broker.rig import TOPIC, TestClient, create, records, running_broker
from tests.clock import ManualClock
from tests.running_copy import copy_of_running
from tests.send_headers import client_batch, send_header
from tests.waiting import until

PERIOD_S = 60
INVALID = ResponseCode.INVALID_PARAMETER


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    return Schedule(**{"name": name, "topic": TOPIC, "body": b"go", "every_millis": PERIOD_S * 1000} | changes)


async def set_schedule(client: TestClient, wanted: Schedule, *, replace: bool = False) -> ReceivedResponse:
    header = SetScheduleRequestHeader(topic=wanted.topic, replace=replace)
    return await client.ask(RequestCode.SET_SCHEDULE, header, dumps(wanted))


async def begin(client: TestClient, *wanted: Schedule) -> None:
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for one in wanted:
        answer = await set_schedule(client, one)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def state_of(client: TestClient, name: str = "nightly") -> ScheduleState:
    header = ScheduleRequestHeader(topic=TOPIC, name=name)
    return loads(bytes((await client.ask_well(RequestCode.GET_SCHEDULE, header)).body), ScheduleState)


async def change(client: TestClient, code: RequestCode, name: str = "nightly", topic: str = TOPIC) -> ReceivedResponse:
    return await client.ask(code, ScheduleRequestHeader(topic=topic, name=name))


async def pause(client: TestClient, paused: bool, name: str = "nightly") -> None:
    header = PauseScheduleRequestHeader(topic=TOPIC, name=name, paused=paused)
    await client.ask_well(RequestCode.PAUSE_SCHEDULE, header)


def fire(broker: Broker) -> None:
    service_of(broker, RecurringMessages).fire_due()


def fired(broker: Broker, topic: str = TOPIC) -> list[tuple[str, int]]:
    """Name and fire time of the messages of schedules, in the order of time."""
    found = [parse(bytes(record.properties).decode()) for record in records(broker, topic)]
    of_schedules = [one for one in found if INNER_SCHEDULE in one]
    return sorted(
        ((one["SCHEDULE_NAME"], int(one["SCHEDULE_TIME_MS"])) for one in of_schedules), key=lambda one: one[1]
    )


@pytest.mark.code(RequestCode.SET_SCHEDULE, RequestCode.GET_SCHEDULE, RequestCode.GET_SCHEDULES)
async def test_a_schedule_sends_its_message_at_each_of_its_times(tmp_path: Path) -> None:
    clock = ManualClock()
    start = clock.wall_ms()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule(properties={"TAGS": "red", "KEYS": "k", "colour": "blue"}))
        assert (await state_of(client)).next_millis == start + 60_000
        for _ in range(3):
            clock.advance(PERIOD_S)
            fire(broker)
            fire(broker)
        assert fired(broker) == [("nightly", start + number * 60_000) for number in (1, 2, 3)]
        record = records(broker, TOPIC)[0]
        properties = parse(bytes(record.properties).decode())
        assert bytes(record.body) == b"go" and properties["TAGS"] == "red" and properties["colour"] == "blue"
        listed = loads(bytes((await client.ask_well(RequestCode.GET_SCHEDULES)).body), ScheduleStatesBody)
        assert [(one.schedule.name, one.fired_total, one.fired_millis) for one in listed.schedules] == [
            ("nightly", 3, start + 180_000)
        ]


async def test_after_a_kill_the_log_says_what_was_sent(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path / "own", clock=clock) as (broker, client):
        await begin(client, schedule(catch_up=CatchUp.ALL), schedule("other", every_millis=90_000))
        clock.advance(PERIOD_S)
        fire(broker)
        await work_now("schedule_positions", periodic_of(broker))
        clock.advance(PERIOD_S)
        fire(broker)  # not in the file of positions
        before = fired(broker)
        assert len(before) == 3
        copy_of_running(tmp_path / "own", tmp_path / "copy")
    async with running_broker(tmp_path / "copy", clock=clock) as (broker, client):
        await until(lambda: len(service_of(broker, RecurringMessages).agenda.by_key) == 2)
        fire(broker)
        assert fired(broker) == before
        clock.advance(PERIOD_S)
        fire(broker)
        assert len(fired(broker)) == 5


async def test_a_start_reads_the_log_from_the_first_schedule_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "own", clock=ManualClock()) as (broker, client):
        await begin(client)
        for _ in range(20):
            await client.send(b"x" * 1000)
        before = broker.store.wrote_offset
        assert (await set_schedule(client, schedule())).code == ResponseCode.SUCCESS
        copy_of_running(tmp_path / "own", tmp_path / "copy")
    async with running_broker(tmp_path / "copy", clock=ManualClock()) as (broker, _):
        assert core_of(broker).schedule_positions.log_offset >= before > 20_000


async def test_what_was_missed_while_the_broker_was_down_is_made_up_for(tmp_path: Path) -> None:
    clock = ManualClock()
    start = clock.wall_ms()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule(catch_up=CatchUp.ALL, max_catch_up=2), schedule("last"))
        clock.advance(PERIOD_S)
        fire(broker)
    clock.advance(10 * PERIOD_S)
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await until(lambda: len(fired(broker)) == 5)
        assert [at for name, at in fired(broker) if name == "last"] == [start + 60_000, start + 660_000]
        assert [at for name, at in fired(broker) if name == "nightly"] == [
            start + 60_000, start + 600_000, start + 660_000,
        ]  # fmt: skip


async def test_a_clock_that_jumps_repeats_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule(catch_up=CatchUp.ALL))
        for step_ms in (60_000, 3_600_000, -3_600_000, 60_000, -120_000, 3_600_000, 60_000):
            clock.step_wall(step_ms)
            for _ in range(4):
                fire(broker)
        times = [at for _, at in fired(broker)]
        assert len(times) == len(set(times)) == 61


@pytest.mark.code(RequestCode.PAUSE_SCHEDULE, RequestCode.TRIGGER_SCHEDULE, RequestCode.DELETE_SCHEDULE)
async def test_a_schedule_is_paused_triggered_and_deleted(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule(catch_up=CatchUp.ALL))
        await pause(client, True)
        assert (await state_of(client)).is_paused
        clock.advance(10 * PERIOD_S)
        fire(broker)
        assert fired(broker) == [] and records(broker, TOPIC) == []
        assert (await change(client, RequestCode.TRIGGER_SCHEDULE)).code == ResponseCode.SUCCESS
        assert len(records(broker, TOPIC)) == 1
        await pause(client, False)
        fire(broker)
        assert fired(broker) == []  # what was due in the pause does not count
        clock.advance(PERIOD_S)
        fire(broker)
        assert len(fired(broker)) == 1
        await client.ask_well(RequestCode.DELETE_SCHEDULE, ScheduleRequestHeader(topic=TOPIC, name="nightly"))
        clock.advance(PERIOD_S)
        fire(broker)
        assert len(fired(broker)) == 1
        assert (await change(client, RequestCode.DELETE_SCHEDULE)).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_schedule_is_set_twice_and_changed(tmp_path: Path) -> None:
    clock = ManualClock()
    start = clock.wall_ms()
    async with running_broker(tmp_path, clock=clock) as (_, client):
        await begin(client, schedule())
        assert "exists already" in ((await set_schedule(client, schedule())).remark or "")
        clock.advance(30)
        await set_schedule(client, schedule(body=b"new"), replace=True)  # the rule is the same
        assert (await state_of(client)).next_millis == start + 60_000
        await set_schedule(client, schedule(every_millis=10_000), replace=True)
        assert (await state_of(client)).next_millis == start + 40_000
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Other"))
        assert (await set_schedule(client, schedule(topic="Other"))).code == ResponseCode.SUCCESS  # another one


async def test_a_refused_message_is_tried_again_and_the_reason_is_shown(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule())
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        clock.advance(PERIOD_S)
        for _ in range(100):  # within the pause before the next attempt
            fire(broker)
        state = await state_of(client)
        assert (state.refused_total, state.fired_total) == (1, 0) and "not exist" in state.last_error
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        clock.advance(2)
        fire(broker)
        state = await state_of(client)
        assert (state.fired_total, state.last_error) == (1, "")


async def test_quotas_hold_for_schedules(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, *(schedule(str(number)) for number in range(4)))
        await client.ask_well(RequestCode.SET_QUOTA, None, dumps(Quota(f"topic:{TOPIC}", messages_in=1)))
        clock.advance(PERIOD_S)
        for _ in range(200):
            fire(broker)
            clock.advance(0.1)
        assert len(fired(broker)) == 4
        assert sum([(await state_of(client, str(number))).refused_total for number in range(4)]) > 0


async def test_a_delayed_message_counts_as_sent_when_it_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule(properties={"DELAY": "3"}))
        clock.advance(PERIOD_S)
        fire(broker)
        assert records(broker, TOPIC) == [] and (await state_of(client)).fired_total == 1
        assert len(fired(broker, "SCHEDULE_TOPIC_XXXX")) == 1


async def test_a_sender_cannot_say_that_a_schedule_has_fired(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await begin(client, schedule())
        id_ = core_of(broker).schedules.by_name[f"{TOPIC}/nightly"].id
        false = {INNER_SCHEDULE: f"{id_}:{clock.wall_ms() + 10**9}:{TOPIC}/nightly"}
        await client.send(**false)
        for more in ({"TAGS": "a"}, {"TIMER_DELAY_MS": "1"}, {"DELAY": "1"}, {"TRAN_MSG": "true"}):
            await client.send(**false, **more)
        member = f"{INNER_SCHEDULE}\x01{false[INNER_SCHEDULE]}\x02"
        header = send_header(TOPIC, batch=True, properties="UNIQ_KEY\x010A000001000000000000000000000001\x02")
        await client.ask_well(RequestCode.SEND_BATCH_MESSAGE, header, client_batch((0, b"one", member.encode())))
        assert all(
            INNER_SCHEDULE.encode() not in bytes(one.properties)
            for name in dict(broker.store.queues())
            for one in records(broker, name)
        )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": ""}, "printable characters"),
        ({"name": "a\x01b"}, "printable characters"),
        ({"every_millis": 0}, "one of cron and everyMillis"),
        ({"cron": "0 5 * * *"}, "one of cron and everyMillis"),
        ({"every_millis": 999}, "everyMillis is from 1000"),
        ({"every_millis": 0, "cron": "x"}, "five fields"),
        ({"every_millis": 0, "cron": "0 5 * * *", "time_zone": "Nowhere"}, "no time zone"),
        ({"jitter_millis": 60_001}, "jitterMillis is from 0 to 60000"),
        ({"max_catch_up": 0}, "maxCatchUp"),
        ({"body": b"x" * 65_537}, "a body has 1 to 65536 bytes"),
        ({"body": b""}, "a body has 1 to 65536 bytes"),
        ({"properties": {"a": "x" * 20_000}}, "properties have more than"),
        ({"properties": {"INNER_SCHEDULE": "x"}}, "is for brokers"),
        ({"properties": {"a\x01": "x"}}, "no character 1 or 2"),
    ],
)
async def test_a_wrong_schedule_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        await begin(client)
        answer = await set_schedule(client, schedule(**changes))
        assert answer.code == INVALID and why in (answer.remark or ""), answer.remark


async def test_all_schedules_of_a_broker_fit_into_one_answer(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        await begin(client)
        body, number = b"\xff" * 65_536, 0
        while (answer := await set_schedule(client, schedule(str(number), body=body))).code == ResponseCode.SUCCESS:
            number += 1
        assert number > 100 and "would have more than" in (answer.remark or "")
        listed = loads(bytes((await client.ask_well(RequestCode.GET_SCHEDULES)).body), ScheduleStatesBody)
        assert len(listed.schedules) == number and listed.schedules[0].schedule.body == body


async def test_a_schedule_needs_a_topic_that_producers_may_send_to(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        assert "does not exist" in ((await set_schedule(client, schedule())).remark or "")
        assert "brokers use" in ((await set_schedule(client, schedule(topic="SCHEDULE_TOPIC_XXXX"))).remark or "")
        await begin(client, schedule())
        assert (await change(client, RequestCode.GET_SCHEDULE, topic="Other")).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_change_is_answered_when_the_slave_has_it(tmp_path: Path) -> None:
    clock, sync = ManualClock(), BrokerRole.SYNC_MASTER
    async with (
        running_broker(tmp_path / "master", clock=clock, broker_role=sync) as (master, client),
        running_broker(tmp_path / "slave", clock=clock, broker_id=1, broker_role=BrokerRole.SLAVE) as (slave, _),
    ):
        await begin(client)
        assert slave.following is not None
        slave.following.master_found(master.address, master.registration.ha_address)
        known = core_of(slave).schedules.by_name
        await until(lambda: TOPIC in core_of(slave).topics)
        for number in range(3):
            assert (await set_schedule(client, schedule(str(number)))).code == ResponseCode.SUCCESS
            assert set(known) == {f"{TOPIC}/{one}" for one in range(number + 1)}
        assert (await change(client, RequestCode.DELETE_SCHEDULE, "1")).code == ResponseCode.SUCCESS
        await pause(client, True, "2")
        assert known == core_of(master).schedules.by_name
        assert (len(known), known[f"{TOPIC}/2"].is_paused) == (2, True)
    async with running_broker(tmp_path / "slave", clock=clock) as (slave, _):
        assert set(core_of(slave).schedules.by_name) == {f"{TOPIC}/0", f"{TOPIC}/2"}


async def test_a_slave_has_the_schedules_and_goes_on_as_the_master(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running_broker(tmp_path / "master", clock=clock) as (master, client),
        running_broker(tmp_path / "slave", clock=clock, broker_id=1, broker_role=BrokerRole.SLAVE) as (slave, other),
    ):
        await begin(client, schedule())
        assert slave.following is not None
        slave.following.master_found(master.address, master.registration.ha_address)
        clock.advance(PERIOD_S)
        fire(master)
        await until(lambda: core_of(slave).schedules.by_name == core_of(master).schedules.by_name != {})
        await work_now("schedule_positions", periodic_of(master))
        await until(lambda: core_of(slave).schedule_positions.fired_ms(f"{TOPIC}/nightly") is not None)
        clock.advance(PERIOD_S)
        fire(slave)  # a slave sends nothing
        fire(master)
        await until(lambda: len(fired(slave)) == 2)
        assert (await set_schedule(other, schedule("new"))).code != ResponseCode.SUCCESS
        before = fired(slave)
    async with running_broker(tmp_path / "slave", clock=clock) as (broker, client):
        clock.advance(PERIOD_S)
        await until(lambda: len(fired(broker)) == 3)
        assert fired(broker)[:2] == before
