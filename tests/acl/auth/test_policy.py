"""Identity and permission of requests, with RocketMQ's codes and texts."""

from collections.abc import Mapping, Sequence

import pytest

from acl.access_request import AccessRequest, FailedAttempt, Needed, Verdict
from acl.auth.infos import acl_of
from acl.auth.model import Action, Resource, User, UserStatus, UserType
from acl.auth.policy import AuthPolicy
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.remote_addresses import parts_of
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials, signature

ADMIN = Credentials("admin", "secret of admin")
ALICE = Credentials("alice", "secret of alice")
CODE = RequestCode.SEND_MESSAGE_V2
NOBODY = "Authorization failed. Please verify your access rights and try again."


def topic_of(asked: AccessRequest) -> Sequence[Needed]:
    """A stand-in for the needs of requests: Pub of the topic, if there is one."""
    return [Needed(Resource.topic(asked.fields["b"]), (Action.PUB,))] if "b" in asked.fields else []


def asked(
    credentials: Credentials | None = None,
    topic: str = "orders",
    code: int = CODE,
    peer: str = "10.1.2.3",
    body: bytes = b"body",
    certificate_name: str | None = None,
) -> AccessRequest:
    fields = {"b": topic}
    if credentials is not None:
        fields = credentials.signed(fields, body)
    return AccessRequest(code, 479, parts_of(peer), fields, body, certificate_name=certificate_name)


def changed(request: AccessRequest, **fields: str) -> AccessRequest:
    return AccessRequest(request.code, request.version, request.peer, {**request.fields, **fields}, request.body)


@pytest.fixture
def tables() -> AuthTables:
    made = AuthTables()
    made.create_user(User("admin", "secret of admin", UserType.SUPER))
    made.create_user(User("alice", "secret of alice"))
    return made


def allow(tables: AuthTables, resource: str, decision: str = "Allow", source_ips: list[str] | None = None) -> None:
    entry = PolicyEntryInfo(resource, ["Pub"], source_ips, decision)
    tables.update_acl(acl_of(AclInfo("User:alice", [PolicyInfo(None, [entry])])))


def policy(tables: AuthTables, **settings: object) -> AuthPolicy:
    enabled: dict[str, object] = {"authentication_enabled": True, "authorization_enabled": True, **settings}
    by_name = AuthSettings(**enabled)  # type: ignore[arg-type] # their types are those of the fields
    return AuthPolicy(by_name, tables, topic_of)


def refusal(guard: AuthPolicy, request: AccessRequest) -> str:
    with pytest.raises(RequestError) as refused:
        guard.check(request)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    return refused.value.remark


def test_a_signed_request_of_a_super_user_passes(tables: AuthTables) -> None:
    assert policy(tables).check(asked(ADMIN)) == Verdict("admin")


@pytest.mark.parametrize(
    ("request_", "text", "is_guess"),
    [
        (asked(), "username cannot be null.", False),
        (changed(asked(), AccessKey=""), "username cannot be null.", False),
        (asked(Credentials("bob", "secret of admin")), "User:bob is not found.", True),
        (asked(Credentials("admin", "secret of alice")), "check signature failed.", True),
        (asked(Credentials("Admin", "secret of admin")), "User:Admin is not found.", True),
        (changed(asked(ADMIN), b="other"), "check signature failed.", True),
        (changed(asked(ADMIN), more="1"), "check signature failed.", True),
        (changed(asked(ADMIN), Signature=""), "check signature failed.", True),
        (changed(asked(ADMIN), Signature="ü"), "check signature failed.", True),
        (changed(asked(ADMIN), AccessKey="alice"), "check signature failed.", True),
        (changed(asked(), AccessKey="admin"), "check signature failed.", True),
    ],
)
def test_a_request_without_proof_is_refused(
    tables: AuthTables, request_: AccessRequest, text: str, is_guess: bool
) -> None:
    for guard in (policy(tables), policy(tables, authentication_enabled=False)):
        assert refusal(guard, request_) == text
        with pytest.raises(RequestError) as refused:
            guard.check(request_)
        assert isinstance(refused.value, FailedAttempt) is is_guess


def test_an_unknown_user_costs_the_check_that_a_wrong_key_costs(
    tables: AuthTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def counted(secret_key: str, fields: Mapping[str, str], body: bytes, version: int) -> str:
        checked.append(len(fields) + len(body))
        return signature(secret_key, fields, body, version)

    monkeypatch.setattr("acl.auth.policy.signature", counted)
    guard = policy(tables)
    tables.update_user("alice", None, None, UserStatus.DISABLE)
    for name in ("admin", "stranger", "alice"):
        refusal(guard, asked(Credentials(name, "wrong"), body=b"x" * 1000))
    assert len(checked) == 3
    assert len(set(checked)) == 1


def test_a_disabled_user_is_nobody_until_it_is_enabled(tables: AuthTables) -> None:
    guard = policy(tables)
    tables.update_user("admin", None, None, UserStatus.DISABLE)
    assert refusal(guard, asked(ADMIN)) == "User:admin is disabled."
    tables.update_user("admin", None, None, UserStatus.ENABLE)
    guard.check(asked(ADMIN))


def test_a_new_password_counts_at_once(tables: AuthTables) -> None:
    guard = policy(tables)
    guard.check(asked(ADMIN))
    tables.update_user("admin", "another secret", None, None)
    assert refusal(guard, asked(ADMIN)) == "check signature failed."
    guard.check(asked(Credentials("admin", "another secret")))


@pytest.mark.parametrize(
    "strategy", ["", "org.apache.rocketmq.auth.authorization.strategy.StatefulAuthorizationStrategy"]
)
def test_policies_decide_and_changes_count_at_once(tables: AuthTables, strategy: str) -> None:
    guard = policy(tables, authorization_strategy=strategy)
    text = "User:alice has no permission to access Topic:orders from 10.1.2.3, "
    for _ in range(2):
        assert refusal(guard, asked(ALICE)) == text + "no matched policies."
    allow(tables, "Topic:ord*")
    for _ in range(2):
        assert guard.check(asked(ALICE)) == Verdict("alice")
    assert refusal(guard, asked(ALICE, "payments")).endswith("Topic:payments from 10.1.2.3, no matched policies.")
    allow(tables, "Topic:orders", "Deny")
    assert refusal(guard, asked(ALICE)) == text + "the decision is deny."
    guard.check(asked(ALICE, "orders-2"))
    tables.delete_user("alice")
    assert refusal(guard, asked(ALICE, "orders-2")) == "User:alice is not found."


def test_policies_hold_where_they_say(tables: AuthTables) -> None:
    allow(tables, "*", source_ips=["10.0.0.0/8", "2001:db8::1"])
    guard = policy(tables)
    guard.check(asked(ALICE))
    guard.check(asked(ALICE, peer="2001:db8:0::1"))
    assert refusal(guard, asked(ALICE, peer="192.168.0.1")).endswith("from 192.168.0.1, no matched policies.")
    assert " from 2001:db8:0:0:0:0:0:2, " in refusal(guard, asked(ALICE, peer="2001:db8::2"))


def test_authentication_alone_asks_for_no_permission(tables: AuthTables) -> None:
    guard = policy(tables, authorization_enabled=False)
    assert guard.check(asked(ALICE)) == Verdict("alice")
    assert refusal(guard, asked()) == "username cannot be null."


def test_white_lists_of_codes(tables: AuthTables) -> None:
    unsigned = policy(tables, authentication_whitelist="10, 310", authorization_whitelist="310")
    assert unsigned.check(asked()) is None
    assert unsigned.check(asked(ALICE)) == Verdict("alice")
    assert refusal(unsigned, asked(code=RequestCode.PULL_MESSAGE)) == "username cannot be null."
    # An unproved name counts as none, also for the right to administer.
    assert unsigned.check(changed(asked(), AccessKey="admin", Signature="x")) is None
    assert unsigned.check(changed(asked(), AccessKey="admin")) is None
    assert unsigned.is_signed_by_super(CODE, "admin") is False
    assert unsigned.is_signed_by_super(RequestCode.AUTH_CREATE_USER, "admin") is True
    assert unsigned.is_signed_by_super(RequestCode.AUTH_CREATE_USER, "alice") is False
    assert unsigned.is_signed_by_super(RequestCode.AUTH_CREATE_USER, None) is False
    half = policy(tables, authentication_whitelist="310")
    assert refusal(half, changed(asked(), AccessKey="admin")) == NOBODY
    assert refusal(half, asked()) == NOBODY
    half.check(asked(ADMIN))


def test_a_certificate_names_a_user_where_the_operator_says_so(tables: AuthTables) -> None:
    allow(tables, "Topic:orders")
    trusting = policy(tables, certificate_as_user=True)
    assert trusting.check(asked(certificate_name="alice")) == Verdict("alice")
    assert refusal(trusting, asked(topic="other", certificate_name="alice")).startswith("User:alice has no permission")
    assert refusal(trusting, asked(certificate_name="bob")) == "User:bob is not found."
    # The signer's name is the one that counts.
    assert trusting.check(asked(ADMIN, certificate_name="alice")) == Verdict("admin")
    wrong = Credentials("admin", "secret of alice")
    assert refusal(trusting, asked(wrong, certificate_name="alice")) == "check signature failed."
    assert refusal(policy(tables), asked(certificate_name="alice")) == "username cannot be null."
    listed = policy(tables, certificate_as_user=True, authentication_whitelist="310")
    assert listed.check(asked(certificate_name="alice")) == Verdict("alice")
