"""Commands that ask each broker of a cluster, of which one does not answer."""

from uuid import uuid4

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket_cli import exit_codes
from sprocket_cli.mqadmin.main import main
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address, runner

DEAD = "127.0.0.1:1"


@pytest.fixture
def half_dead(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the broker that lives; the one before it in the cluster does not."""

    async def addresses(_: AdminClient, cluster_name: str, *, masters_only: bool) -> list[str]:
        return [DEAD, address(cluster)]

    monkeypatch.setattr(AdminClient, "broker_addresses", addresses)
    return address(cluster)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("brokerStatus", "{live} "),
        ("haStatus", "#MasterAddr\t{live}"),
        ("updateSubGroup -g {new}", "create subscription group to {live} success."),
        ("updateSubGroup -g {new}", "SubscriptionGroupConfig"),
        ("updateTopic -t {new}", "create topic to {live} success."),
        ("deleteSubGroup -g {new}", "delete subscription group [{new}] from broker [{live}] in cluster"),
        ("getQuota -q topic:{new}", "of the 1 that answered: there is no quota 'topic:{new}'"),
        ("updateBrokerConfig -k maxMessageSize -v 4194304", "update broker config success, {live}"),
    ],
)
def test_the_others_are_asked_after_a_broker_failed(admin: Admin, half_dead: str, words: str, said: str) -> None:
    new = f"G{uuid4().hex}"
    lines = admin(*words.format(new=new).split(), "-c", "DefaultCluster", fails=True)
    assert any(line.startswith(said.format(live=half_dead, new=new)) for line in lines), lines
    [failure] = [line for line in lines if DEAD in line]
    assert failure.endswith(f": connect to {DEAD}: connection refused")
    assert lines[-1] == "Error: 1 of 2 servers failed, see above"


def test_without_any_answer_nothing_is_shown(cluster: Cluster, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(_: AdminClient, cluster_name: str, *, masters_only: bool) -> list[str]:
        return [DEAD, DEAD.replace(":1", ":2")]

    monkeypatch.setattr(AdminClient, "broker_addresses", addresses)
    lines = admin("brokerStatus", "-c", "DefaultCluster", "--json", fails=True)
    assert lines[-1] == "Error: 2 of 2 servers failed, see above" and len(lines) == 3


@pytest.mark.parametrize("words", [["updateNamesrvConfig", "-k", "{key}", "-v", "true"], ["getNamesrvConfig"]])
def test_the_others_are_asked_after_a_name_server_failed(cluster: Cluster, words: list[str]) -> None:
    key = "returnOrderTopicConfigToBroker"
    lines = runner(f"{DEAD};{cluster.namesrv}")(*[word.format(key=key) for word in words], fails=True)
    said = {
        "updateNamesrvConfig": f"update name server config success![{cluster.namesrv}]",
        "getNamesrvConfig": f"============{cluster.namesrv}============",
    }
    assert said[words[0]] in lines
    assert any(line.endswith(f"NAMESRV_CONFIG: connect to {DEAD}: connection refused") for line in lines), lines
    assert lines[-1] == "Error: 1 of 2 servers failed, see above"


def test_a_group_that_is_deleted_is_said_to_be_so_if_its_topics_are_not(
    cluster: Cluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: AdminClient, broker: str, topic: str) -> None:
        raise AdminError(f"{topic} stays")

    monkeypatch.setattr(AdminClient, "delete_topic_at", refused)
    lines = admin("deleteSubGroup", "-g", "Gone", "-c", "DefaultCluster", fails=True)
    said = f"delete subscription group [Gone] from broker [{address(cluster)}] in cluster [DefaultCluster] success."
    assert said in lines and any("%RETRY%Gone stays" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("updateUser -u x -p y", "give exactly one of -b and -c"),
        ("updateUser -u x -p y -c C -b 127.0.0.1:1", "give exactly one of -b and -c"),
        ("cleanExpiredCQ -b 127.0.0.1:1 -c C", "give at most one of -b and -c"),
        ("cleanExpiredCQ", "no name server given"),
    ],
)
def test_wrong_usage_is_told_before_a_name_server_is_needed(
    monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == exit_codes.USAGE and said in done.output
