"""Static topics with RocketMQ's mqadmin and client at our brokers, and with files that both tools exchange."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import pytest
from click.testing import CliRunner

from sprocket.static_topic.plan import check_plan
from sprocket.static_topic.plan_file import read_plan
from sprocket_cli.mqadmin.main import main
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.java_client import AdminShell

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC: Final = "JavaStatic"
LOGICAL: Final = "__syslo__global__"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def two(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with SprocketCluster(tmp_path_factory.mktemp("cluster") / "servers", brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def theirs(two: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    shell = AdminShell(tmp_path_factory.mktemp("theirs"))
    shell.run("clusterList", "-n", two.name_server_address)  # it loads its classes, and may time out

    def run(*arguments: str) -> str:
        printed = shell.run(*arguments, "-n", two.name_server_address)
        assert "Exception" not in printed, printed
        return printed

    yield run
    shell.close()


@pytest.fixture(scope="module")
def ours(two: Cluster) -> Run:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, [*arguments, "-n", two.name_server_address])
        assert done.exit_code == 0, done.output
        return done.output

    return run


@pytest.fixture(autouse=True)
def no_files_left() -> Iterator[None]:
    yield
    for file in Path(gettempdir()).glob(f"{TOPIC}*"):
        file.unlink()


def files_of(printed: str) -> list[Path]:
    """The files that a command names: the state before, and the plan."""
    return [Path(name) for name in re.findall(r"is written to file (\S+)", printed)]


def extents(status: str) -> dict[str, str]:
    """The maximum offset by logical queue, of `topicStatus`."""
    rows = [line.split() for line in status.splitlines()]
    return {row[1]: row[3] for row in rows if row and row[0] == LOGICAL}


def sends(tool: Run) -> None:
    """Four messages in turn to the queues."""
    printed = tool("checkMsgSendRT", "-t", TOPIC, "-a", "4", "-s", "10")
    assert printed.count(" true ") == 4, printed


def test_rocketmq_makes_moves_and_uses_a_static_topic_of_our_brokers(two: Cluster, theirs: Run, ours: Run) -> None:
    first, second = (broker.name for broker in two.brokers)
    written = files_of(theirs("updateStaticTopic", "-t", TOPIC, "-qn", "2", "-b", first))
    plan = read_plan(written[1].read_bytes())
    check_plan(TOPIC, plan)
    assert plan.broker_config_map[first].write_queue_nums == 2
    sends(theirs)
    assert extents(theirs("topicStatus", "-t", TOPIC)) == extents(ours("topicStatus", "-t", TOPIC))

    moved = read_plan(files_of(theirs("remappingStaticTopic", "-t", TOPIC, "-b", second))[1].read_bytes())
    check_plan(TOPIC, moved)
    assert (moved.broker_to_map_in, moved.broker_to_map_out) == ([second], [first])
    sends(theirs)
    sends(ours)
    shown = extents(theirs("topicStatus", "-t", TOPIC))
    assert shown == extents(ours("topicStatus", "-t", TOPIC)) == {"0": "10004", "1": "10004"}
    # From the first broker, through the second; this command stops where an answer brings nothing.
    consumed = theirs("consumeMessage", "-t", TOPIC, "-b", LOGICAL, "-i", "0", "-o", "0")
    assert consumed.count("MSGID: ") == 2 and "offset=10000" in consumed
    # The other way round: ours moves what RocketMQ's has made, and RocketMQ's goes on.
    ours("remappingStaticTopic", "-t", TOPIC, "-b", first)
    theirs("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{first},{second}")
    sends(theirs)
    assert extents(ours("topicStatus", "-t", TOPIC)) == {"0": "20001", "1": "20001", "2": "1", "3": "1"}


def test_a_plan_that_rocketmq_wrote_is_carried_out_by_ours(two: Cluster, theirs: Run, ours: Run) -> None:
    topic = f"{TOPIC}Again"
    first, second = (broker.name for broker in two.brokers)
    theirs("updateStaticTopic", "-t", topic, "-qn", "2", "-b", first)
    plan = files_of(theirs("remappingStaticTopic", "-t", topic, "-b", second))[1]
    before = extents(theirs("topicStatus", "-t", topic))
    assert ours("remappingStaticTopic", "-t", topic, "-mf", str(plan)) == ""
    assert extents(theirs("topicStatus", "-t", topic)) == before


def test_rocketmq_resets_a_group_in_logical_queues_that_have_moved(two: Cluster, theirs: Run, ours: Run) -> None:
    """`-s` back to the start and to the end, an offset of one queue, and a backlog that is skipped."""
    topic, group = f"{TOPIC}Reset", "JavaStaticGroup"
    first, second = (broker.name for broker in two.brokers)
    for broker in two.brokers:
        ours("updateSubGroup", "-b", broker.address, "-g", group)
    theirs("updateStaticTopic", "-t", topic, "-qn", "2", "-b", first)
    theirs("checkMsgSendRT", "-t", topic, "-a", "4", "-s", "10")
    theirs("remappingStaticTopic", "-t", topic, "-b", second)
    theirs("checkMsgSendRT", "-t", topic, "-a", "4", "-s", "10")
    leader = two.brokers[1].address

    def offsets() -> list[str]:
        """The group's offset by logical queue, in the words of both tools."""
        rows = [line.split() for line in ours("consumerProgress", "-g", group, "-t", topic).splitlines()]
        return [row[4] for row in rows if row[:1] == [topic]]

    printed = theirs("resetOffsetByTime", "-g", group, "-t", topic, "-s", "-1")
    assert printed.count(LOGICAL) == 2 and offsets() == ["10002", "10002"], printed
    theirs("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert offsets() == ["0", "0"]
    theirs("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-b", leader, "-q", "1", "-o", "10001")
    assert offsets() == ["0", "10001"]
    theirs("skipAccumulatedMessage", "-g", group, "-t", topic)
    assert offsets() == ["10002", "10002"]
