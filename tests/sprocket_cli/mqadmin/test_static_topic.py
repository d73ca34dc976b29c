"""`mqadmin updateStaticTopic` and `remappingStaticTopic`: RocketMQ's options, words and files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.static_topic.plan import check_plan
from sprocket.static_topic.plan_file import read_plan
from tests.background import in_background
from tests.client.admin.static_brokers import StaticCluster, static_cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, runner


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StaticCluster]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with in_background(static_cluster("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def tool(brokers: StaticCluster) -> Admin:
    return runner(brokers.name_server.address)


def written(line: str, kind: str) -> Path:
    start = f"The {kind} mapping data is written to file "
    assert line.startswith(start)
    return Path(line.removeprefix(start))


def test_a_topic_is_made_and_grows_and_its_plans_are_kept(brokers: StaticCluster, tool: Admin) -> None:
    lines = tool("updateStaticTopic", "-t", "t", "-qn", "2", "-c", "c")
    before, after = written(lines[0], "old"), written(lines[1], "new")
    assert before.suffix == ".before" and after.suffix == ".after"
    assert read_plan(before.read_bytes()).broker_config_map == {}
    plan = read_plan(after.read_bytes())
    check_plan("t", plan)
    assert after.name == f"t-{plan.epoch}.after"
    assert sorted(brokers.leaders("t").values()) == ["broker-a", "broker-b"]
    lines = tool("updateStaticTopic", "-t", "t", "-qn", "4", "-b", "broker-a, broker-b")
    assert read_plan(written(lines[0], "old").read_bytes()).epoch == plan.epoch
    assert len(brokers.leaders("t")) == 4


def test_queues_move_and_a_stopped_move_is_repeated_from_its_file(brokers: StaticCluster, tool: Admin) -> None:
    tool("updateStaticTopic", "-t", "t", "-qn", "2", "-b", "broker-a")
    brokers.asked.clear()
    brokers.fails_after = 2
    lines = tool("remappingStaticTopic", "-t", "t", "-b", "broker-b", fails=True)
    after = written(lines[1], "new")
    assert "the test stops here" in lines[-1]
    brokers.fails_after = None
    refused = tool("remappingStaticTopic", "-t", "t", "-b", "broker-b", fails=True)
    assert "repeat it with -mf and its file t-" in refused[-1]
    assert tool("remappingStaticTopic", "-t", "t", "-mf", str(after)) == []
    assert set(brokers.leaders("t").values()) == {"broker-b"}
    assert brokers.brokers["broker-b"].items("t", 0)[-1].logic_offset == 10_000


def test_an_old_state_is_restored_by_force_alone(brokers: StaticCluster, tool: Admin) -> None:
    tool("updateStaticTopic", "-t", "t", "-qn", "2", "-b", "broker-a")
    before = written(tool("updateStaticTopic", "-t", "t", "-qn", "3", "-b", "broker-a")[0], "old")
    assert "is below" in tool("updateStaticTopic", "-t", "t", "-mf", str(before), fails=True)[-1]
    assert tool("updateStaticTopic", "-t", "t", "-mf", str(before), "-fr", "true") == []
    assert len(brokers.leaders("t")) == 2


def test_wrong_usage_says_what_to_do(brokers: StaticCluster, tool: Admin, tmp_path: Path) -> None:
    for command in (["updateStaticTopic", "-qn", "2"], ["remappingStaticTopic"]):
        assert "give exactly one of -b and -c" in tool(*command, "-t", "t", fails=True)[-1]
        assert "character that is not allowed" in tool(*command, "-t", "../t", "-c", "c", fails=True)[-1]
        file = tmp_path / "plan"
        assert "does not exists" in tool(*command, "-t", "t", "-mf", str(file), fails=True)[-1]
        file.write_text("{}")
        assert "no plan for a static topic" in tool(*command, "-t", "t", "-mf", str(file), fails=True)[-1]
        file.unlink()
    assert "-qn is missing" in tool("updateStaticTopic", "-t", "t", "-c", "c", fails=True)[-1]
    assert "No topic route to do the remapping" in tool("remappingStaticTopic", "-t", "t", "-c", "c", fails=True)[-1]
    assert brokers.asked == []


def test_a_link_in_the_temporary_directory_is_not_followed(brokers: StaticCluster, tool: Admin, tmp_path: Path) -> None:
    tool("updateStaticTopic", "-t", "t", "-qn", "2", "-b", "broker-a")
    detail = brokers.brokers["broker-a"].topics["t"].mapping_detail
    assert detail is not None
    victim = tmp_path / "victim"
    victim.write_text("kept")
    before = tmp_path / f"t-{detail.epoch}.before"
    before.symlink_to(victim)
    refused = tool("remappingStaticTopic", "-t", "t", "-b", "broker-b", fails=True)
    assert "cannot be written" in refused[-1] and victim.read_text() == "kept"
