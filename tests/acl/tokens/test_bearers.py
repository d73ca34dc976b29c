"""Gates, and who presents a token: users, roles, super users; passes, audit lines, and the end of a token."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from acl import passes
from acl.access_request import AccessRequest
from acl.auth.errors import AuthRefused
from acl.auth.infos import acl_of
from acl.auth.model import PolicyType, Subject, SubjectType, User, UserStatus, UserType
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import PROVEN_ACCOUNT, Gate
from acl.gate_settings import GateSettings
from acl.tokens.revocations import Revocation
from acl.tokens.tokens import tokens_of
from proxy.access.gate import GrpcGate
from proxy.clients.telemetry_stream import TelemetryStream
from sprocket.engine.choice import native
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON, ROCKETMQ
from tests.acl.matrix import Doors, Outcome
from tests.acl.test_passes import PULLED, ROUTES, SENT
from tests.acl.tokens.makers import ALGORITHMS, key, key_files, token
from tests.clock import ManualClock

NOW_S = ManualClock().wall_ms() // 1000
ALICE = Credentials("alice", "secret-of-alice")
ENGINES = [pytest.param(None, id="python")]
if native("sprocket.remoting.signatures_native") is not None:
    ENGINES.append(pytest.param(native("sprocket.remoting.signatures_native"), id="compiled"))
with_engines = pytest.mark.parametrize("engine", ENGINES)


class Port:
    """A gate with users, roles and keys of every kind."""

    def __init__(self, folder: Path, engine: Any = None, **settings: Any) -> None:
        self.clock, self.engine = ManualClock(), engine
        self.tables = AuthTables()
        self.tables.create_user(User("admin", "secret-of-admin", UserType.SUPER))
        self.tables.create_user(User("alice", "secret-of-alice"))
        self.allow("User:alice", "Topic:Orders", "Group:G")
        self.allow("Role:readers", "Topic:Bills", "Group:G")
        files = key_files(folder, *map(key, ALGORITHMS))
        by_name = AuthSettings(authentication_enabled=True, authorization_enabled=True, **files, **settings)
        tokens = tokens_of(by_name, self.clock, lambda: self.tables.revocations)
        assert tokens is not None
        self.tokens = tokens
        self.policy = AuthPolicy(by_name, self.tables, required, self.tokens)
        self.gate = Gate([self.policy], GateSettings(), self.clock, cluster="c")
        self.door = Doors(ROUTES, self.gate.stand_before)

    def allow(self, subject: str, *resources: str, decision: str = "Allow") -> None:
        entries = [PolicyEntryInfo(resource, ["Pub", "Sub"], [], decision) for resource in resources]
        self.tables.update_acl(acl_of(AclInfo(subject, [PolicyInfo(None, entries)])))

    def token(self, **more: Any) -> str:
        return token(key("ES256"), self.clock.wall_ms() // 1000, **more)

    def send(self, access_key: str, topic: str = "Orders", signature: str = "any", form: int = JSON) -> Outcome:
        fields = {**SENT, "b": topic, "AccessKey": access_key, "Signature": signature}
        with patch.object(passes, "_engine", self.engine):
            return self.door.ask(310, fields, b"body", form)

    def pull(self, access_key: str) -> Outcome:
        with patch.object(passes, "_engine", self.engine):
            return self.door.ask(11, {**PULLED, "AccessKey": access_key, "Signature": "any"}, b"", JSON)


def whole_checks(port: Port, access_key: str, form: int = JSON) -> int:
    """How many of three sends take the whole check."""
    with patch.object(Gate, "admitted", autospec=True, side_effect=Gate.admitted) as checked:
        for _ in range(3):
            assert port.send(access_key, form=form).served
    return checked.call_count


@with_engines
@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
async def test_a_token_is_an_access_key_whatever_the_signature(tmp_path: Path, engine: Any, form: int) -> None:
    port = Port(tmp_path, engine)
    for algorithm in ALGORITHMS:
        for signature in ("", "rop", "c2lnbmF0dXJl" * 9, "\u00fc"):
            assert port.send(token(key(algorithm), NOW_S), signature=signature, form=form).served
    assert not port.send(token(key("ES256"), NOW_S), "Bills").served
    assert port.pull(token(key("ES256"), NOW_S)).served
    assert port.door.channel.attributes[PROVEN_ACCOUNT] == "alice"


async def test_a_connection_keeps_its_proof(tmp_path: Path) -> None:
    if len(ENGINES) == 1:
        pytest.skip("passes need the compiled engine")
    port = Port(tmp_path, native("sprocket.remoting.signatures_native"))
    for form in (JSON, ROCKETMQ):
        first = port.token(token_id=f"first-{form}")
        assert (whole_checks(port, first, form), whole_checks(port, first, form)) == (1, 0)
        assert whole_checks(port, port.token(token_id=f"second-{form}"), form) == 1


@with_engines
async def test_a_token_ends_on_an_open_connection(tmp_path: Path, engine: Any) -> None:
    port = Port(tmp_path, engine)
    text = port.token(life_s=60)
    assert port.send(text).served and port.send(text).served
    port.clock.advance(70)
    port.tokens.look()
    assert port.send(text).remark == "the token of User:alice has expired; present a new one"
    assert not port.pull(text).served
    assert port.send(port.token(token_id="t2")).served


@pytest.mark.parametrize("lives_s", [(60,), (60, 600)])
async def test_an_idle_connection_ends_with_the_token_that_it_presented_last(
    tmp_path: Path, lives_s: tuple[int, ...]
) -> None:
    port = Port(tmp_path)
    for number, life_s in enumerate(lives_s):
        assert port.send(port.token(life_s=life_s, token_id=f"t{number}")).served
    port.clock.advance(lives_s[-1] - 10)
    port.tokens.look()
    assert not port.door.is_closed
    port.clock.advance(20)
    port.tokens.look()
    assert port.door.is_closed


async def test_a_revocation_ends_idle_connections_of_its_tokens_alone(tmp_path: Path) -> None:
    port = Port(tmp_path)
    assert port.send(port.token()).served
    port.tables.revoke(Revocation(token_id="another"), NOW_S)
    port.tokens.look()
    assert not port.door.is_closed
    port.tables.revoke(Revocation(token_id="t1"), NOW_S)
    port.tokens.look()
    assert port.door.is_closed


async def test_idle_connections_outlive_keys_that_still_hold_and_end_with_a_withdrawn_one(tmp_path: Path) -> None:
    port = Port(tmp_path)
    assert port.send(port.token()).served
    key_files(tmp_path, *map(key, ALGORITHMS), key("ES256", "second"))
    port.tokens.look()
    assert not port.door.is_closed
    key_files(tmp_path, key("ES256", "second"))
    port.tokens.look()
    assert port.door.is_closed


@with_engines
@pytest.mark.parametrize("one", [Revocation(token_id="t1"), Revocation(user="alice", before_s=NOW_S)])
async def test_a_revoked_token_ends_at_once(tmp_path: Path, engine: Any, one: Revocation) -> None:
    port = Port(tmp_path, engine)
    text = port.token()
    assert port.send(text).served and port.send(text).served
    port.tables.revoke(one, NOW_S)
    assert port.send(text).remark == "the token of User:alice is revoked; present a new one"
    assert not port.send(text).served
    port.clock.advance(1)
    assert port.send(port.token(token_id="t2")).served


@with_engines
async def test_a_withdrawn_key_ends_its_tokens(tmp_path: Path, engine: Any) -> None:
    port = Port(tmp_path, engine)
    text = port.token()
    assert port.send(text).served and port.send(text).served
    key_files(tmp_path, key("ES256", "second"))
    port.tokens.look()
    assert not port.send(text).served


@with_engines
async def test_changes_of_the_user_count_at_once(tmp_path: Path, engine: Any) -> None:
    port = Port(tmp_path, engine)
    text = port.token()
    assert port.send(text).served and port.send(text).served
    port.allow("User:alice", "Topic:Orders", decision="Deny")
    assert "the decision is deny" in port.send(text).remark
    port.allow("User:alice", "Topic:Orders")
    assert port.send(text).served and port.send(text).served
    port.tables.update_user("alice", None, None, UserStatus.DISABLE)
    assert port.send(text).remark == "User:alice is disabled."


@with_engines
async def test_another_token_on_the_connection_has_its_own_rights(tmp_path: Path, engine: Any) -> None:
    port = Port(tmp_path, engine)
    with_role, without = port.token(roles=("readers",)), port.token(token_id="t2")
    for _ in range(3):
        assert port.send(with_role, "Bills").served
        assert not port.send(without, "Bills").served
    signed = ALICE.signed({**SENT, "b": "Orders"}, b"body")
    assert port.door.ask(310, signed, b"body", JSON).served
    assert not port.door.ask(310, {**signed, "Signature": "any"}, b"body", JSON).served


async def test_a_role_brings_its_policies_and_needs_no_user(tmp_path: Path) -> None:
    port = Port(tmp_path)
    assert port.send(port.token(user="carol", roles=("readers", "unknown")), "Bills").served
    refused = port.send(port.token(user="carol", roles=("unknown",)), "Bills")
    assert refused.remark == "User:carol is not found, and no role of its token has an acl."
    # Deny comes before allow, whether the user's own policies say it or those of a role.
    port.allow("Role:banned", "Topic:Orders", decision="Deny")
    assert not port.send(port.token(roles=("banned",))).served
    assert port.send(port.token(token_id="t2")).served
    port.tables.delete_acl(Subject("readers", SubjectType.ROLE), PolicyType.CUSTOM, None)
    assert not port.send(port.token(user="carol", roles=("readers",)), "Bills").served


async def test_a_token_makes_nobody_a_super_user_unless_it_may(tmp_path: Path) -> None:
    port = Port(tmp_path / "a")
    text = port.token(user="admin")
    assert "needs its password (tokenSuperUserEnabled)" in port.send(text).remark
    assert not port.policy.is_signed_by_super(3001, text)
    port = Port(tmp_path / "b", token_super_user_enabled=True)
    assert port.send(text, "Anything").served
    assert port.policy.is_signed_by_super(3001, text)
    assert not port.policy.is_signed_by_super(3001, text[:-9] + "AAAAAAAAA")


async def test_forged_tokens_count_against_their_address_and_expired_ones_do_not(tmp_path: Path) -> None:
    port = Port(tmp_path)
    expired = port.token(life_s=-60)
    for _ in range(150):
        assert "has expired" in port.send(expired).remark
    forged = {**key("ES256", "second"), "kid": key("ES256")["kid"]}
    remarks = [port.send(token(forged, NOW_S, token_id=str(number))).remark for number in range(120)]
    assert remarks.count("no known key has signed the token") == 100
    assert remarks[-1].startswith("too many wrong signatures")


async def test_no_line_and_no_refusal_has_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    port = Port(tmp_path)
    good = port.token(token_id="the-id")
    forged = good[:-20] + "A" * 20
    shown = [port.send(good, "Bills"), port.send(forged), port.send("eyJ" + good), port.send(good + ".x.y")]
    port.clock.advance(1000)
    shown.append(port.send(good))
    lines = [record.getMessage() for record in caplog.records if record.name == "sprocket.audit"]
    assert 'account="alice" token="the-id"' in lines[0] and 'account="(a token)" token=""' in lines[1]
    for text in (*caplog.messages, *(one.remark or "" for one in shown)):
        assert good.split(".")[1] not in text and "eyJ" not in text


async def test_a_server_without_keys_takes_no_token(tmp_path: Path) -> None:
    port = Port(tmp_path)
    port.policy = AuthPolicy(AuthSettings(authentication_enabled=True), port.tables, required)
    port.gate.replace_policies([port.policy])
    refused = port.send(port.token())
    assert refused.remark.startswith("tokens are not accepted here")
    assert "eyJ" not in refused.remark


@pytest.mark.parametrize(
    ("topic", "admitted"), [("Paid", True), ("shop|orders%Paid", True), ("shop|bills%Paid", False)]
)
async def test_a_user_of_a_namespace_ends_transactions_as_with_a_password(
    tmp_path: Path, topic: str, admitted: bool
) -> None:
    port = Port(tmp_path)
    port.tables.create_user(User("shop|orders%app", "secret"))
    port.allow("User:shop|orders%app", "Namespace:shop|orders")
    fields = {"AccessKey": port.token(user="shop|orders%app"), "Signature": "any", "topic": topic}
    asked = AccessRequest(int(RequestCode.END_TRANSACTION), 0, None, fields, b"")
    if admitted:
        assert port.policy.check(asked) is not None
    else:
        with pytest.raises(AuthRefused):
            port.policy.check(asked)


async def test_a_telemetry_stream_ends_with_its_token(tmp_path: Path) -> None:
    port, closed = Port(tmp_path), list[bool]()
    gate = GrpcGate(port.policy, GateSettings(), port.tables, port.clock, "c", lambda client_id, account: None)
    call: Any = SimpleNamespace(metadata={"authorization": f"Bearer {port.token(life_s=60)}"}, peer=("10.0.0.1", 1))

    async def write(command: object) -> None: ...

    stream = TelemetryStream("client", write, lambda: closed.append(True), 1)
    gate.bind(call, stream)
    port.tokens.look()
    assert not closed
    port.clock.advance(70)
    port.tokens.look()
    assert closed == [True]
