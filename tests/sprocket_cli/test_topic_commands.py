"""`sprocket topic create` and `list`: a topic that exists is changed only by who says so."""

import asyncio
import json
from subprocess import CompletedProcess
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli import exit_codes
from sprocket_cli.main import main
from sprocket_cli.mqadmin.main import main as mqadmin_main
from tests.sprocket_cli.conftest import Cluster


def sprocket(cluster: Cluster, *arguments: str) -> CompletedProcess[str]:
    """The command `sprocket` in this process."""
    return completed(main, cluster, *arguments)


def mqadmin(cluster: Cluster, *arguments: str) -> str:
    ended = completed(mqadmin_main, cluster, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def completed(program: click.Group, cluster: Cluster, *arguments: str) -> CompletedProcess[str]:
    done = CliRunner().invoke(program, [*arguments, "-n", cluster.namesrv])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def shape(cluster: Cluster, name: str) -> tuple[int, int, str]:
    [row] = json.loads(sprocket(cluster, "topic", "route", name, "--json").stdout)
    return row["readQueues"], row["writeQueues"], row["perm"]


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic with four queues and five messages, one of them in each of queues 1 and 2 and three in 3."""
    name = f"T{uuid4().hex}"
    assert sprocket(cluster, "topic", "create", name, "--queues", "4").returncode == 0
    for queue in (1, 2, 3, 3, 3):
        mqadmin(cluster, "sendMessage", "-t", name, "-p", str(queue), "-b", "broker-a", "-i", str(queue))
    return name


def test_a_topic_that_exists_is_left_alone(cluster: Cluster, topic: str) -> None:
    for queues in ("2", "4", "8"):
        ended = sprocket(cluster, "topic", "create", topic, "--queues", queues)
        assert (ended.returncode, ended.stdout) == (exit_codes.FAILURE, "")
        assert ended.stderr == (
            f"Error: topic {topic} exists on broker-a (4 queues); nothing was changed. "
            "Add --update to change its number of queues\n"
        )
    assert shape(cluster, topic) == (4, 4, "RW-")


def test_update_grows_a_topic_and_changes_nothing_else(cluster: Cluster) -> None:
    name = f"T{uuid4().hex}"
    flags = ("-c", "DefaultCluster", "-t", name, "-r", "2", "-w", "2", "-p", "4", "-a", "+message.type=FIFO")
    mqadmin(cluster, "updateTopic", *flags)
    ended = sprocket(cluster, "topic", "create", name, "--update", "--queues", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"topic {name} has 3 queues on {cluster.broker.facts['address']}\n"
    assert shape(cluster, name) == (3, 3, "R--")
    kept = json.loads((cluster.folder / "store" / "config" / "topics.json").read_text())["topicConfigTable"][name]
    assert kept["attributes"] == {"message.type": "FIFO"}


def test_update_creates_what_is_not_there(cluster: Cluster) -> None:
    name = f"T{uuid4().hex}"
    assert sprocket(cluster, "topic", "create", name, "--update", "--queues", "1").returncode == 0
    assert shape(cluster, name) == (1, 1, "RW-")


def test_shrinking_is_refused_with_what_would_be_unreachable(cluster: Cluster, topic: str) -> None:
    ended = sprocket(cluster, "topic", "create", topic, "--update", "--queues", "2")
    assert (ended.returncode, ended.stdout) == (exit_codes.FAILURE, "")
    assert "broker-a: queues 2 to 3, with 4 messages (queue 2: 1, queue 3: 3)" in ended.stderr
    assert "nothing was changed" in ended.stderr
    assert f"mqadmin updateTopic -c DefaultCluster -t {topic} -w 2 -r 4" in ended.stderr
    assert shape(cluster, topic) == (4, 4, "RW-")


def test_force_shrinks_and_growing_brings_the_messages_back(cluster: Cluster, topic: str) -> None:
    ended = sprocket(cluster, "topic", "create", topic, "--update", "--force", "--queues", "3")
    assert ended.returncode == 0
    assert ended.stderr == "No longer readable on broker-a: queue 3, with 3 messages (queue 3: 3)\n"
    assert shape(cluster, topic) == (3, 3, "RW-")
    consume = ("consume", topic, "-g", topic, "--from", "first", "--wait", "15", "--max")
    assert sorted(sprocket(cluster, *consume, "2").stdout.split()) == ["1", "2"]
    assert sprocket(cluster, "topic", "create", topic, "--update", "--queues", "4").returncode == 0
    # A consumer that reads the old route asks for it again only after 30 s.
    asyncio.run(cluster.await_route(topic, queues=4))
    assert sprocket(cluster, *consume, "3").stdout.split() == ["3", "3", "3"]


@pytest.mark.parametrize("flags", [("--update",), ("--force", "--queues", "2"), ("--queues", "0")])
def test_half_an_order_is_wrong_usage(cluster: Cluster, flags: tuple[str, ...]) -> None:
    assert sprocket(cluster, "topic", "create", "Any", *flags).returncode == exit_codes.USAGE


def test_mqadmin_changes_a_topic_as_rocketmq_does(cluster: Cluster, topic: str) -> None:
    mqadmin(cluster, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
    assert shape(cluster, topic) == (2, 2, "RW-")


def test_list_shows_topics_of_applications(cluster: Cluster, topic: str) -> None:
    sprocket(cluster, "consume", topic, "-g", topic, "--from", "first", "--max", "1", "--wait", "15")
    asyncio.run(cluster.await_route(f"%RETRY%{topic}"))
    shown = sprocket(cluster, "topic", "list").stdout.split()
    assert topic in shown
    hidden = set(sprocket(cluster, "topic", "list", "--all").stdout.split()) - set(shown)
    assert {"TBW102", "DefaultCluster", "broker-a", "rmq_sys_wheel_timer", f"%RETRY%{topic}"} <= hidden
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "DefaultCluster_REPLY_TOPIC"} <= hidden
    # Tests that share the cluster have topics, too.
    assert not [name for name in shown if name.startswith(("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_"))], shown


def test_a_topic_is_made_at_the_masters_after_one_that_fails(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, live, made = "127.0.0.1:1", f"127.0.0.1:{cluster.broker.port}", []

    async def masters(_: AdminClient, cluster_name: str, *, masters_only: bool) -> list[str]:
        return [dead, live]

    async def absent(_: AdminClient, broker: str, topic: str) -> None:
        return None

    async def create(_: AdminClient, broker: str, config: TopicConfig) -> None:
        if broker == dead:
            raise AdminError("no disk")
        made.append((broker, config.write_queue_nums))

    monkeypatch.setattr(AdminClient, "broker_addresses", masters)
    monkeypatch.setattr(AdminClient, "topic_config", absent)
    monkeypatch.setattr(AdminClient, "create_topic", create)
    ended = sprocket(cluster, "topic", "create", "HalfMade", "--queues", "3")
    assert (ended.returncode, ended.stdout) == (exit_codes.FAILURE, "")
    assert ended.stderr == f"{dead}: no disk\nError: 1 of 2 servers failed, see above\n"
    assert made == [(live, 3)]
