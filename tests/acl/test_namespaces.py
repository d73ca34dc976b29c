"""A namespace's users: what they may do in it, and that no request reaches beyond it."""

import logging

import pytest

from acl.access_request import AccessRequest, Verdict
from acl.auth.account_requests import ACCOUNT_CODES
from acl.auth.infos import acl_of
from acl.auth.model import User
from acl.auth.policy import AuthPolicy
from acl.auth.requests import FILTERED, required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate_settings import GateSettings
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON
from sprocket.remoting.routes import Action, Resource, Route
from tests.acl.matrix import GROUP, TOPIC, Doors, Shape, shape
from tests.acl.test_access_matrix import served as served
from tests.clock import ManualClock

OWN, OTHER = "shop|orders", "shop|billing"
ADMIN = Credentials(f"{OWN}%admin", "secret-of-admin")
READER = Credentials(f"{OWN}%reader", "secret-of-reader")
SERVERS = ("broker", "namesrv", "controller")
# Lists of the whole cluster.
NOT_ADMITTED = {
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
}
# Responses are filtered, or show what routes show, too.
ADMITTED = FILTERED | {RequestCode.GET_BROKER_CLUSTER_INFO}
# Without a name these concern nothing, or the topic of a message, which the handler checks after reading it.
OF_NOTHING = {
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
    RequestCode.END_TRANSACTION,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
}
SETTINGS = AuthSettings(authentication_enabled=True, authorization_enabled=True)


def entries(*resources: str, actions: list[str]) -> AclInfo:
    return AclInfo(None, [PolicyInfo(None, [PolicyEntryInfo(one, actions, None, "Allow") for one in resources])])


def policy(**rights: tuple[str, ...]) -> AuthPolicy:
    tables = AuthTables()
    for account, name in ((ADMIN, "admin"), (READER, "reader")):
        tables.create_user(User(account.access_key, account.secret_key))
        actions = ["All"] if name == "admin" else ["Pub", "Sub"]
        resources = rights.get(name, (f"Namespace:{OWN}",))
        tables.update_acl(acl_of(entries(*resources, actions=actions), f"User:{account.access_key}"))
    return AuthPolicy(SETTINGS, tables, required)


def doors(routes: list[Route]) -> Doors:
    return Doors(routes, Gate((policy(),), GateSettings(), ManualClock()).stand_before)


def inside(one: Shape, namespace: str) -> Shape:
    """Return the request with its topics, groups and users in `namespace`."""

    def moved(text: str) -> str:
        for name in (TOPIC, GROUP):
            text = text.replace(name, f"{namespace}%{name}")
        return text

    fields = {key: moved(value) for key, value in one.fields.items()}
    if one.code in ACCOUNT_CODES:
        fields |= dict.fromkeys(fields.keys() & {"username"}, f"{namespace}%bob")
        fields |= dict.fromkeys(fields.keys() & {"subject"}, f"User:{namespace}%bob")
    return Shape(one.code, fields, moved(one.body.decode()).encode())


def ask(doors: Doors, of: Shape, account: Credentials) -> tuple[bool, int]:
    outcome = doors.ask(of.code, account.signed(of.fields, of.body), of.body, JSON)
    return outcome.served, outcome.answers[0].code if outcome.answers else 0


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("account", [ADMIN, READER], ids=["admin", "reader"])
async def test_no_request_names_what_is_in_another_namespace(
    served: dict[str, list[Route]], server: str, account: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    through = doors(served[server])
    for route in served[server]:
        was_served, code = ask(through, inside(shape(route), OTHER), account)
        if was_served:
            assert account is ADMIN, route.code.name
            assert route.code in ADMITTED, route.code.name
        else:
            assert code == ResponseCode.NO_PERMISSION, route.code.name


@pytest.mark.parametrize("server", SERVERS)
async def test_a_request_without_a_name_shows_no_more_than_the_namespace(
    served: dict[str, list[Route]], server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    through = doors(served[server])
    served_codes = {route.code for route in served[server] if ask(through, Shape(int(route.code), {}, b"{}"), ADMIN)[0]}
    assert served_codes <= ADMITTED | OF_NOTHING
    assert served_codes.isdisjoint(OF_NOTHING) == (server != "broker")


@pytest.mark.parametrize("server", SERVERS)
async def test_an_administrator_of_a_namespace_is_served_in_it(served: dict[str, list[Route]], server: str) -> None:
    through = doors(served[server])
    for route in served[server]:
        if route.resource is Resource.CLUSTER:
            continue
        of = inside(shape(route), OWN)
        of = Shape(of.code, {key: f"{OWN}%x" if one == "text" else one for key, one in of.fields.items()}, of.body)
        was_served, _ = ask(through, of, ADMIN)
        assert was_served or route.code in NOT_ADMITTED, route.code.name
        for_reader, _ = ask(through, of, READER)
        assert for_reader or route.action not in (Action.PUB, Action.SUB), route.code.name
        assert not for_reader or route.action not in (Action.CREATE, Action.DELETE), route.code.name


async def test_an_account_that_sends_and_reads_manages_nothing(served: dict[str, list[Route]]) -> None:
    through = doors(served["broker"])
    for route in served["broker"]:
        if route.code in ACCOUNT_CODES:
            assert not ask(through, inside(shape(route), OWN), READER)[0], route.code.name


def asked(code: RequestCode, body: bytes = b"", account: Credentials = ADMIN, **fields: str) -> AccessRequest:
    signed = account.signed(fields, body)
    return AccessRequest(int(code), 0, None, signed, body, cluster="DefaultCluster")


def is_admitted(request: AccessRequest, of: AuthPolicy | None = None) -> bool:
    try:
        (of or policy()).check(request)
    except RequestError as error:
        assert error.code == ResponseCode.NO_PERMISSION
        return False
    return True


@pytest.mark.parametrize(
    ("resource", "admitted"),
    [
        (f"Topic:{OWN}%Paid", True),
        (f"Topic:{OWN}%*", True),
        (f"Topic:{OWN}%Pa*", True),
        (f"Topic:%DLQ%{OWN}%Billing", True),
        (f"Group:{OWN}%*", True),
        (f"Namespace:{OWN}", True),
        (f"Namespace:{OWN}*", False),
        ("Namespace:shop|*", False),
        ("Namespace:*", False),
        (f"Namespace:{OTHER}", False),
        (f"Topic:{OTHER}%Paid", False),
        (f"Topic:{OWN}", False),
        (f"Topic:{OWN}*", False),
        ("Topic:Paid", False),
        ("Topic:%RETRY%*", False),
        ("Topic:*", False),
        ("Group:*", False),
        ("Cluster:*", False),
        ("*", False),
        ("nothing", False),
    ],
)
def test_an_administrator_gives_no_rights_beyond_the_namespace(resource: str, admitted: bool) -> None:
    info = entries(resource, actions=["Pub"])
    for code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL):
        assert is_admitted(asked(code, dumps(info), subject=f"User:{OWN}%bob")) is admitted
    both = entries(f"Topic:{OWN}%Paid", resource, actions=["Pub"])
    assert is_admitted(asked(RequestCode.AUTH_UPDATE_ACL, dumps(both), subject=f"User:{OWN}%bob")) is admitted


@pytest.mark.parametrize("subject", [f"User:{OTHER}%bob", "User:bob", "User:", "Role:bob", ""])
def test_an_administrator_changes_no_user_of_another_namespace(subject: str) -> None:
    body = dumps(entries(f"Topic:{OWN}%Paid", actions=["Pub"]))
    assert not is_admitted(asked(RequestCode.AUTH_UPDATE_ACL, body, subject=subject))
    assert not is_admitted(asked(RequestCode.AUTH_DELETE_ACL, subject=subject))
    assert not is_admitted(asked(RequestCode.AUTH_GET_ACL, subject=subject))
    name = subject.partition(":")[2]
    for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER):
        assert not is_admitted(asked(code, b"{}", username=name))


def test_the_subject_in_the_body_is_the_one_that_counts() -> None:
    """The handler prefers it to the one in the header."""
    info = entries(f"Topic:{OWN}%Paid", actions=["Pub"])
    info.subject = "User:bob"
    assert not is_admitted(asked(RequestCode.AUTH_UPDATE_ACL, dumps(info), subject=f"User:{OWN}%bob"))


def test_who_may_change_the_cluster_manages_the_users_of_all_namespaces() -> None:
    operator = policy(admin=("Cluster:*",))
    body = dumps(entries("Topic:*", actions=["Pub"]))
    assert is_admitted(asked(RequestCode.AUTH_UPDATE_ACL, body, subject=f"User:{OTHER}%bob"), operator)


def test_a_list_shows_the_names_in_own_namespaces() -> None:
    request = asked(RequestCode.GET_ALL_TOPIC_CONFIG)
    shows = policy().visible(Verdict(ADMIN.access_key), request)
    assert shows is not None
    names = [f"{OWN}%Paid", f"%RETRY%{OWN}%Billing", f"%DLQ%{OWN}%Billing", f"%LMQ%${OWN}%Chats$one"]
    assert [name for name in names if shows(name)] == names
    others = ["Paid", f"{OTHER}%Paid", f"%RETRY%{OTHER}%Billing", OWN, f"{OWN}x%Paid", "shop%Paid", "orders%Paid", ""]
    assert [name for name in others if shows(name)] == []
    assert not is_admitted(asked(RequestCode.GET_ALL_TOPIC_CONFIG, account=READER))


def test_a_tenant_s_administrator_sees_all_of_its_namespaces_and_no_other_s() -> None:
    of_tenant = policy(admin=("Namespace:shop|*",))
    shows = of_tenant.visible(Verdict(ADMIN.access_key), asked(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert shows is not None
    assert shows(f"{OWN}%Paid") and shows(f"{OTHER}%Paid")
    assert not shows("shopper|orders%Paid") and not shows("shop%Paid")


def test_who_sees_the_cluster_sees_all_names() -> None:
    operator = policy(admin=("Cluster:*", f"Namespace:{OWN}"))
    assert operator.visible(Verdict(ADMIN.access_key), asked(RequestCode.GET_ALL_TOPIC_CONFIG)) is None


@pytest.mark.parametrize(
    ("topic", "admitted"),
    [
        (f"{OWN}%Paid", True),
        ("Paid", True),  # as Java's client writes it: the namespace is that of the account
        ("RMQ_SYS_TRANS_HALF_TOPIC", True),  # as it writes it when a broker asked
        ("", True),
        (f"{OTHER}%Paid", False),
        (f"shop%{OWN}%Paid", False),
    ],
)
def test_the_end_of_a_transaction_in_a_namespace(topic: str, admitted: bool) -> None:
    """The handler checks the topic of the half message again."""
    assert is_admitted(asked(RequestCode.END_TRANSACTION, account=READER, topic=topic)) is admitted
