"""Every code of broker, name server and controller, every role, every way to forge a request, in all encodings.

The table is made from the routes: a code that is added is asked for here without anybody thinking of it.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acl.access_request import AccessRequest, Verdict
from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
)
from acl.auth.policy import AuthPolicy
from acl.auth.requests import of_message, required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate import Policy as GatePolicy
from acl.gate_settings import GateSettings
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from broker.server import Broker
from controller.config import ControllerConfig
from controller.server import Controller
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import InvariantError, RequestError
from sprocket.remoting import routes
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.routes import Route
from tests.acl.matrix import CLUSTER, FORGERIES, GROUP, TOPIC, Doors, Shape, shape, unknown_shapes
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock
from tests.tiers import sample

SUPER = Credentials("SuperUser", "secret-of-super")
RIGHT = Credentials("WithRight", "secret-of-right")
NO_RIGHT = Credentials("WithoutRight", "secret-of-without")
DISABLED = Credentials("DisabledUser", "secret-of-disabled")
UNKNOWN = Credentials("UnknownUser", "secret-of-unknown")
# In the first tier, those that would be served with a signature of their own.
EVERYBODY = sample((UNKNOWN, DISABLED, NO_RIGHT, RIGHT, SUPER), quick=2)
BOTH = (JSON, ROCKETMQ)

# In ACL 1.0 the right to publish to and consume one topic, in one group, and nothing else.
ACCOUNTS = b"""
accounts:
  - {accessKey: SuperUser, secretKey: secret-of-super, admin: true}
  - accessKey: WithRight
    secretKey: secret-of-right
    topicPerms: [Orders=PUB|SUB, text=SUB]
    groupPerms: [CG=SUB, text=SUB]
  - accessKey: WithoutRight
    secretKey: secret-of-without
    topicPerms: [Other=PUB|SUB]
    groupPerms: [Other=SUB]
"""
# Requests to a name server or a controller about one topic or cluster.
_OF_ONE_CLUSTER = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    RequestCode.CLEAN_BROKER_DATA,
}
# Without names these requests concern nothing, or the topic of a message, which the handler checks after reading it.
_FREE_WITHOUT_A_NAME = {
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.END_TRANSACTION,
    RequestCode.VIEW_MESSAGE_BY_ID,
}
_CHANGES = (routes.Action.CREATE, routes.Action.UPDATE, routes.Action.DELETE)


def acl(name: str, *resources: Resource) -> Acl:
    entries = tuple(PolicyEntry(one, (Action.ALL,), Environment(), Decision.ALLOW) for one in resources)
    return Acl(User(name, "").subject, (Policy(PolicyType.CUSTOM, entries),))


def users() -> GatePolicy:
    tables = AuthTables()
    for account in (RIGHT, NO_RIGHT):
        tables.create_user(User(account.access_key, account.secret_key))
    tables.create_user(User(SUPER.access_key, SUPER.secret_key, UserType.SUPER))
    tables.create_user(User(DISABLED.access_key, DISABLED.secret_key, UserType.SUPER, UserStatus.DISABLE))
    own = Resource.topic(TOPIC), Resource.group(GROUP), Resource.cluster(CLUSTER)
    tables.update_acl(acl("WithRight", *own, Resource.topic("text"), Resource.group("text")))
    tables.update_acl(acl("WithoutRight", Resource.topic("Other"), Resource.group("Other"), Resource.cluster("Other")))
    settings = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    return AuthPolicy(settings, tables, required)


def accounts() -> GatePolicy:
    return PlainPolicy({"plain_acl.yml": parse("plain_acl.yml", ACCOUNTS)})


def controller_of(root: Path) -> Controller:
    config = ControllerConfig(
        controller_dleger_group="g",
        controller_dleger_peers="n0-127.0.0.1:9878",
        controller_dleger_self_id="n0",
        controller_store_path=root / "controller",
    )
    return Controller(config, on_fatal=lambda error: None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Route]]:
    """Return the routes of a broker that serves everything, of a name server and of a controller."""
    root: Path = tmp_path_factory.mktemp("matrix")
    config = broker_config(authentication_enabled=True)
    return {
        "broker": Broker(config, store_config(root)).routes.routes,
        "namesrv": NameServer(NamesrvConfig(kv_config_path=root / "kvConfig.json")).routes.routes,
        "controller": controller_of(root).routes.routes,
    }


@pytest.fixture(params=["broker", "namesrv", "controller"])
def routes_of(request: pytest.FixtureRequest, served: dict[str, list[Route]]) -> list[Route]:
    found: list[Route] = served[request.param]
    return found


@pytest.fixture(params=[accounts, users], ids=["acl1", "acl2"])
def policy(request: pytest.FixtureRequest) -> GatePolicy:
    made: Callable[[], GatePolicy] = request.param
    return made()


@pytest.fixture
async def doors(routes_of: list[Route], policy: GatePolicy, caplog: pytest.LogCaptureFixture) -> Doors:
    caplog.set_level(logging.ERROR)
    settings = GateSettings(auth_failures_per_second=0)
    cluster = CLUSTER if any(route.code == RequestCode.SEND_MESSAGE for route in routes_of) else ""
    return Doors(routes_of, Gate([policy], settings, ManualClock(), cluster=cluster).stand_before)


def all_shapes(doors: Doors) -> Iterator[Shape]:
    yield from map(shape, doors.routes)
    yield from unknown_shapes(doors.routes)


def is_refusal(policy: GatePolicy, code: int, remark: str) -> bool:
    if isinstance(policy, PlainPolicy):
        return code == ResponseCode.SYSTEM_ERROR and remark.startswith("org.apache.rocketmq.acl.common.AclException: ")
    return code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("forgery", list(FORGERIES))
async def test_nothing_forged_is_served(
    doors: Doors, policy: GatePolicy, forgery: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = 0
    for one in all_shapes(doors):
        for account in EVERYBODY:
            fields, body = FORGERIES[forgery](one, account)
            for serialization in BOTH:
                outcome = doors.ask(one.code, fields, body, serialization)
                what = one.code, account.access_key, serialization, outcome
                assert not outcome.served, what
                assert len(outcome.answers) == 1, what
                assert is_refusal(policy, outcome.code, outcome.remark), what
                count += 1
    assert count > 100 * len(EVERYBODY)
    assert not doors.is_closed
    assert not caplog.records


async def test_a_request_without_the_right_is_not_served(doors: Doors, policy: GatePolicy) -> None:
    for one in all_shapes(doors):
        for account in (NO_RIGHT, DISABLED, UNKNOWN):
            for serialization in BOTH:
                fields = account.signed(one.fields, one.body)
                outcome = doors.ask(one.code, fields, one.body, serialization)
                assert not outcome.served, (one.code, outcome)
                is_known = one.code in doors.table.entries
                is_refused = is_refusal(policy, outcome.code, outcome.remark)
                assert is_refused or (not is_known and outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED), one
                oneway = doors.ask(one.code, fields, one.body, serialization, oneway=True)
                assert not oneway.served and not oneway.answers, one.code


async def test_an_admin_and_a_super_user_are_served(doors: Doors) -> None:
    for one in map(shape, doors.routes):
        for serialization in BOTH:
            outcome = doors.ask(one.code, SUPER.signed(one.fields, one.body), one.body, serialization)
            assert outcome.served, (one.code, outcome)


async def test_what_is_served_is_what_was_judged(doors: Doors) -> None:
    for route in doors.routes:
        one = shape(route)
        for serialization in BOTH:
            fields = SUPER.signed(one.fields, one.body)
            doors.ask(one.code, fields, one.body, serialization)
            (request,) = doors.served
            assert (request.code, request.body) == (one.code, one.body)
            assert request.header == doors.table.routed(type(request)(code=one.code), fields)[1].header


@pytest.mark.parametrize("policy", [users], ids=["acl2"], indirect=True)
async def test_policies_for_what_a_request_names_are_enough(doors: Doors) -> None:
    is_broker = RequestCode.SEND_MESSAGE in doors.table.entries
    for one in map(shape, doors.routes):
        outcome = doors.ask(one.code, RIGHT.signed(one.fields, one.body), one.body, JSON)
        # A name server or a controller belongs to no cluster: a request that names none needs all of them.
        assert outcome.served is (is_broker or one.code in _OF_ONE_CLUSTER), (one.code, outcome)


@pytest.mark.parametrize("policy", [accounts], ids=["acl1"], indirect=True)
async def test_what_acl_1_keeps_for_admins(doors: Doors) -> None:
    for route in doors.routes:
        one = shape(route)
        outcome = doors.ask(one.code, RIGHT.signed(one.fields, one.body), one.body, JSON)
        names_its_own = route.resource is not routes.Resource.CLUSTER and route.action not in _CHANGES
        is_list = route.action is routes.Action.LIST
        assert outcome.served is (names_its_own and not is_list), (route.code.name, outcome)


async def test_a_request_that_names_nothing_is_not_served_to_an_account_without_rights(doors: Doors) -> None:
    for route in doors.routes:
        one = shape(route)
        fields = NO_RIGHT.signed({}, b"")
        outcome = doors.ask(one.code, fields, b"", JSON)
        assert not outcome.served or route.code in _FREE_WITHOUT_A_NAME, (route.code.name, outcome)


@pytest.mark.parametrize("missing", ["resource", "action", "fields", "body"])
def test_a_server_with_a_route_without_a_rule_does_not_start(
    served: dict[str, list[Route]], missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = {
        "resource": replace(_route(served, RequestCode.GET_BROKER_CONFIG), resource=routes.Resource.NONE),
        "action": replace(_route(served, RequestCode.GET_BROKER_CONFIG), action=routes.Action.NONE),
        # A group and a topic for which no rule says in which field the request names them.
        "fields": replace(_route(served, RequestCode.GET_CONSUME_STATS), code=RequestCode.SUSPEND_CONSUMER),
        "body": replace(_route(served, RequestCode.GET_TOPIC_CONFIG), header=routes.NoHeader),
    }[missing]
    monkeypatch.setattr(routes.RouteTable, "routes", [changed])
    for make in (
        lambda: Broker(broker_config(), store_config(tmp_path)),
        lambda: NameServer(NamesrvConfig(kv_config_path=tmp_path / "kvConfig.json")),
        lambda: controller_of(tmp_path),
    ):
        with pytest.raises(InvariantError, match=changed.code.name):
            make()


def _route(served: dict[str, list[Route]], code: RequestCode) -> Route:
    return next(route for route in served["broker"] if route.code is code)


def test_what_who_has_signed_may_be_sent(policy: GatePolicy) -> None:
    asked = AccessRequest(0, 0, None, {}, b"", found=of_message(TOPIC, Action.PUB, CLUSTER))
    for account in (SUPER, RIGHT):
        policy.check_right(Verdict(account.access_key), asked)
    for account in (NO_RIGHT, DISABLED, UNKNOWN):
        with pytest.raises(RequestError):
            policy.check_right(Verdict(account.access_key), asked)
