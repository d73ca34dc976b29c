"""Schedules as applications and operators set them: `mq.schedule`, `mq.schedules`, blocking, `sprocket schedule`."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest
from click.testing import CliRunner

import sprocket
from sprocket import AdminError, CatchUp, ConsumeFrom, IllegalArgument, sync
from sprocket.testing import Broker
from sprocket_cli.main import main

NAMESPACE = "shop|orders"
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("schedules")) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"Reports{next(_numbers)}"
    broker.create_topic(name, 2)
    broker.create_topic(f"{NAMESPACE}%{name}", 2)
    return name


async def test_a_schedule_sends_what_consumers_read(broker: Broker, topic: str) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        state = await mq.schedule("tick", topic=topic, body=b"go", every=1, tags="red", keys="k", properties={"a": "b"})
        assert state.next_millis is not None and state.schedule.catch_up is CatchUp.LAST
        times = []
        async for message in mq.consumer("readers", topic, consume_from=ConsumeFrom.FIRST):
            assert (message.body, message.tags, message.properties["a"]) == (b"go", "red", "b")
            assert message.properties["SCHEDULE_NAME"] == "tick"
            times.append(int(message.properties["SCHEDULE_TIME_MS"]))
            await message.ack()
            if len(times) == 2:
                break
        assert abs(times[1] - times[0]) == 1000
        await mq.schedules.delete("tick", topic)


async def test_a_schedule_is_set_again_paused_triggered_and_deleted(broker: Broker, topic: str) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        first = await mq.schedule("nightly", topic=topic, body=b"go", cron="0 5 * * *", tz="Europe/Berlin", delay=1)
        again = await mq.schedule("nightly", topic=topic, body=b"go", cron="0 5 * * *", tz="Europe/Berlin", delay=1)
        assert first == again and first.schedule.properties == {"TIMER_DELAY_MS": "1000"}
        with pytest.raises(AdminError, match="exists already"):
            await mq.schedule("nightly", topic=topic, body=b"go", cron="0 6 * * *", replace=False)
        with pytest.raises(AdminError, match="does not exist; create it with `sprocket topic create Absent`"):
            await mq.schedule("nightly", topic="Absent", body=b"go", every=1)
        await mq.schedules.pause("nightly", topic)
        await mq.schedules.trigger("nightly", topic)
        assert (await mq.schedules.get("nightly", topic)).is_paused
        await mq.schedules.resume("nightly", topic)
        [listed] = [one for one in await mq.schedules.list() if one.schedule.topic == topic]
        assert not listed.is_paused and listed.schedule.name == "nightly"
        await mq.schedules.delete("nightly", topic)
        with pytest.raises(AdminError, match="has no schedule"):
            await mq.schedules.get("nightly", topic)


async def test_a_namespace_has_its_own_names(broker: Broker, topic: str) -> None:
    async with sprocket.connect(broker.namesrv, namespace=NAMESPACE) as mq, sprocket.connect(broker.namesrv) as outer:
        state = await mq.schedule("nightly", topic=topic, body=b"go", every=timedelta(hours=1))
        assert (state.schedule.name, state.schedule.topic) == ("nightly", topic)
        found = [one.schedule for one in await outer.schedules.list() if one.schedule.topic.endswith(topic)]
        assert [(one.name, one.topic) for one in found] == [("nightly", f"{NAMESPACE}%{topic}")]
        await mq.schedules.delete("nightly", topic)


@pytest.mark.parametrize(
    "rule", [{}, {"cron": "* * * * *", "every": 1}, {"every": -1}, {"every": 5, "catch_up": "some"}, {"every": "x"}]
)
async def test_a_wrong_argument_is_refused_before_it_is_sent(
    broker: Broker, topic: str, rule: dict[str, object]
) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        with pytest.raises(IllegalArgument):
            await mq.schedule("wrong", topic=topic, body=b"go", **rule)  # type: ignore[arg-type]


async def test_over_grpc_there_are_no_schedules() -> None:
    with pytest.raises(IllegalArgument, match="connect to the name server"):
        _ = sprocket.connect("grpc://127.0.0.1:8081").schedules


def test_programs_without_a_loop_set_schedules_too(broker: Broker, topic: str) -> None:
    with sync.connect(broker.namesrv) as mq:
        assert mq.schedule("hourly", topic=topic, body=b"go", every=3600).fired_total == 0
        mq.schedules.pause("hourly", topic)
        mq.schedules.resume("hourly", topic)
        mq.schedules.trigger("hourly", topic)
        assert mq.schedules.get("hourly", topic) in mq.schedules.list()
        mq.schedules.put(mq.schedules.get("hourly", topic).schedule)
        mq.schedules.delete("hourly", topic)


def test_the_command_does_the_same(broker: Broker, topic: str) -> None:
    def run(*words: str, fails: bool = False) -> str:
        done = CliRunner().invoke(main, ["schedule", *words, "-n", broker.namesrv])
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    rule = ("--cron", "0 5 * * *", "--tz", "Europe/Berlin")
    assert "next time: 2" in run(
        "create", "nightly", "go", "--topic", topic, *rule, "--tag", "red", "--property", "a=b"
    )
    assert "exists already" in run("create", "nightly", "go", "--topic", topic, "--every", "5", fails=True)
    assert "0 5 * * * Europe/Berlin" in run("list")
    shown = json.loads(run("show", "nightly", "--topic", topic, "--json"))
    assert shown["schedule"]["properties"] == {"TAGS": "red", "a": "b"} and shown["firedTotal"] == 0
    assert "is paused" in run("pause", "nightly", "--topic", topic)
    assert "state: paused" in run("show", "nightly", "--topic", topic)
    assert "goes on" in run("resume", "nightly", "--topic", topic)
    assert "sent its message" in run("trigger", "nightly", "--topic", topic)
    assert "is deleted" in run("delete", "nightly", "--topic", topic)
    assert "has no schedule" in run("delete", "nightly", "--topic", topic, fails=True)
