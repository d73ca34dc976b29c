"""Commands that ask each broker of a cluster, of which one does not answer."""

from uuid import uuid4

import pytest

from sprocket.client.admin.admin_client import AdminClient
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.mqadmin.conftest import Admin, address

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
    assert any(line.startswith(f"{DEAD}: ") for line in lines)
    assert lines[-1] == "Error: 1 of 2 servers failed, see above"


def test_without_any_answer_nothing_is_shown(cluster: Cluster, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(_: AdminClient, cluster_name: str, *, masters_only: bool) -> list[str]:
        return [DEAD, DEAD.replace(":1", ":2")]

    monkeypatch.setattr(AdminClient, "broker_addresses", addresses)
    lines = admin("brokerStatus", "-c", "DefaultCluster", "--json", fails=True)
    assert lines[-1] == "Error: 2 of 2 servers failed, see above" and len(lines) == 3
