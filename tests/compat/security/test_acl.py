"""Stock clients and mqadmin against a broker with aclEnable: what each account may, with the texts of the reference."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.cluster import CLUSTER_NAME, Cluster, SprocketCluster
from tests.compat.java_client import mqadmin, run_scenarios

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

_ACCOUNTS = """
accounts:
  - accessKey: Administrator
    secretKey: secret-of-admin
    admin: true
  - accessKey: Application
    secretKey: secret-of-application
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - Offered=PUB|SUB
"""
_ADMIN = ("Administrator", "secret-of-admin")
_APPLICATION = ("Application", "secret-of-application")
# One of each kind of client.
_SCENARIOS = (
    "sync-send", "batch-send", "concurrent-push", "orderly-push", "pull-consumer", "lite-pull-subscribe",
    "request-reply", "consume-later", "transactions", "query-by-key", "pop-push",
)  # fmt: skip


@pytest.fixture(scope="module")
def guarded(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
    properties = {"aclEnable": "true", "rocketmqHome": str(home), "transactionCheckInterval": "5000"}
    with SprocketCluster(tmp_path_factory.mktemp("cluster") / "servers", properties=properties) as running:
        yield running


def _old_mqadmin(home: Path, guarded: Cluster, command: str, *arguments: str) -> str:
    where = ("-n", guarded.name_server_address, "-c", CLUSTER_NAME)
    done = mqadmin(home, command, *where, *arguments, is_old=True)
    return done.stdout + done.stderr


def _tools(home: Path, account: tuple[str, str]) -> Path:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text("accessKey: {}\nsecretKey: {}\n".format(*account))
    (home / "conf" / "logback_tools.xml").write_text('<configuration><root level="OFF"/></configuration>')  # 4.9.8
    return home


def test_signed_clients_do_all_that_they_do_without_accounts(guarded: Cluster, tmp_path: Path) -> None:
    outcomes = run_scenarios(guarded.name_server_address, "5.3.3", "JSON", tmp_path, _SCENARIOS, _ADMIN)
    assert set(outcomes) == set(_SCENARIOS)
    assert {name: outcome.message for name, outcome in outcomes.items() if not outcome.passed} == {}


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (None, "No accessKey is configured"),
        (("Stranger", "secret-of-admin"), "No acl config for Stranger"),
        (("Administrator", "secret-of-nobody"), "Check signature failed for accessKey=Administrator"),
        (_APPLICATION, "Need admin permission for request code=17, but accessKey=Application is not"),
    ],
)
def test_a_refused_client_is_told_why(
    guarded: Cluster, tmp_path: Path, account: tuple[str, str] | None, reason: str
) -> None:
    outcomes = run_scenarios(guarded.name_server_address, "5.3.3", "ROCKETMQ", tmp_path, ("sync-send",), account)
    assert not outcomes["sync-send"].passed
    assert reason in outcomes["sync-send"].message


def test_mqadmin_with_the_account_of_its_tools_file(guarded: Cluster, tmp_path: Path) -> None:
    update = ("updateTopic", "-n", guarded.name_server_address, "-c", CLUSTER_NAME, "-t", "Offered", "-r", "2")
    refused = mqadmin(_tools(tmp_path / "application", _APPLICATION), *update)
    assert "Need admin permission" in refused.stdout + refused.stderr
    done = mqadmin(_tools(tmp_path / "admin", _ADMIN), *update)
    assert "success" in done.stdout, done.stdout + done.stderr


def test_accounts_are_changed_by_mqadmin(guarded: Cluster, tmp_path: Path) -> None:
    """The commands stand in mqadmin up to 5.3.2."""
    home = _tools(tmp_path / "admin", _ADMIN)
    account = ("-a", "Newcomer", "-s", "secret-of-newcomer", "-m", "true")
    said = _old_mqadmin(home, guarded, "updateAclConfig", *account, "-t", "Offered=PUB,Other=SUB", "-g", "Some=SUB")
    assert "create or update plain access config" in said and "success" in said, said
    update = ("updateTopic", "-n", guarded.name_server_address, "-c", CLUSTER_NAME, "-t", "Later", "-r", "2")
    newcomer = _tools(tmp_path / "newcomer", ("Newcomer", "secret-of-newcomer"))
    done = mqadmin(newcomer, *update)
    assert "success" in done.stdout, done.stdout + done.stderr

    said = _old_mqadmin(home, guarded, "clusterAclConfigVersion")
    assert "plain_acl.yml" in said and "get cluster's plain access config version success" in said, said
    said = _old_mqadmin(home, guarded, "updateGlobalWhiteAddr", "-g", "10.1.1.1,10.2.*.*")
    assert "update global white remote addresses" in said and "success" in said, said
    said = _old_mqadmin(home, guarded, "deleteAclConfig", "-a", "Newcomer")
    assert "delete plain access config account" in said and "success" in said, said
    refused = mqadmin(newcomer, *update)
    assert "No acl config for Newcomer" in refused.stdout + refused.stderr
