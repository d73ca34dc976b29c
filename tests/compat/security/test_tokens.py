"""Stock Java clients with a token as their access key: over remoting at a broker, over gRPC at a proxy."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sprocket.remoting.codes import RequestCode
from tests.acl.tokens.makers import key, key_files, token
from tests.compat.cluster import CLUSTER_NAME, Cluster, SprocketCluster
from tests.compat.java_client import run_scenarios
from tests.compat.proxies import proxy_clients
from tests.compat.proxies.proxy_rig import ProxyProcess, check, prepare
from tests.compat.security.test_auth import ADMIN, PROPERTIES, Door, acl

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

# One of each kind of client.
SCENARIOS: Final = (
    "sync-send", "batch-send", "concurrent-push", "orderly-push", "pull-consumer", "lite-pull-subscribe",
    "request-reply", "consume-later", "transactions", "pop-push",
)  # fmt: skip
GRPC_SCENARIOS: Final = ("normal-simple", "normal-push", "fifo", "transaction")
SIGNER: Final = key("ES256")
# The clients demand a secret.  Servers ignore it.
ANY: Final = "any"


class Served(NamedTuple):
    namesrv: str
    address: str


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"tokenPublicKey": key_files(tmp_path_factory.mktemp("keys"), SIGNER)["token_public_key"]}


@pytest.fixture(scope="module")
def guarded(java: None, keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a user that may do what an application and its administrator do; nobody knows its password."""
    properties = {**PROPERTIES, **keys, "transactionCheckInterval": "5000"}
    with SprocketCluster(tmp_path_factory.mktemp("cluster") / "servers", properties=properties) as running:
        door = Door(running.brokers[0].address)
        door.well(RequestCode.AUTH_CREATE_USER, {"username": "billing"}, {"username": "billing", "password": "unknown"})
        resources = ("Topic:*", "Group:*", f"Cluster:{CLUSTER_NAME}")
        rights = acl("billing", "Allow", *resources, actions="Pub,Sub,Create,Update,Get,List")
        door.well(RequestCode.AUTH_CREATE_ACL, {"subject": "User:billing"}, rights)
        yield running


def valid(life_s: float = 3600) -> tuple[str, str]:
    return token(SIGNER, time.time(), "billing", life_s=life_s), ANY


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_java_over_remoting_works_with_a_token_as_its_access_key(
    guarded: Cluster, tmp_path: Path, version: str
) -> None:
    outcomes = run_scenarios(guarded.name_server_address, version, "JSON", tmp_path, SCENARIOS, valid())
    assert set(outcomes) == set(SCENARIOS)
    assert {name: outcome.message for name, outcome in outcomes.items() if not outcome.passed} == {}


def test_java_is_told_why_a_token_is_refused(guarded: Cluster, tmp_path: Path) -> None:
    past, forged = valid(life_s=-60), (token(key("ES256", "other"), time.time(), "billing"), ANY)
    for number, (account, reason) in enumerate(((past, "has expired"), (forged, "key or algorithm is not known"))):
        home = tmp_path / str(number)
        refused = run_scenarios(guarded.name_server_address, "5.3.3", "JSON", home, ("sync-send",), account)
        assert not refused["sync-send"].passed and reason in refused["sync-send"].message


def test_java_over_grpc_works_with_a_token_as_its_access_key(
    guarded: Cluster, keys: dict[str, str], tmp_path: Path
) -> None:
    broker = guarded.brokers[0]
    served = Served(guarded.name_server_address, broker.address)
    asked = ("authenticationEnabled", "authorizationEnabled", "innerClientAuthenticationCredentials")
    settings = {name: PROPERTIES[name] for name in asked} | keys
    settings |= {"authConfigPath": str(broker.directory / "store" / "config"), "rocketMQClusterName": CLUSTER_NAME}
    proxy = ProxyProcess(served, tmp_path / "proxy", settings).start()
    try:
        prepare(served, "token", GRPC_SCENARIOS, ADMIN)
        account, home = valid(), tmp_path / "home"
        outcomes = proxy_clients.run_java(proxy.endpoints, "token", GRPC_SCENARIOS, home, tls=True, account=account)
        past = valid(life_s=-60)
        late = proxy_clients.run_java(
            proxy.endpoints, "token", ("normal-simple",), tmp_path / "late", tls=True, account=past
        )
    finally:
        proxy.end(signal.SIGTERM)
    check(outcomes, GRPC_SCENARIOS)
    assert not late["normal-simple"].passed
