"""A gate with passes decides as the same gate without them: for any order of requests, damage and changes."""

import random
from unittest.mock import patch

import msgspec
import pytest

from acl import passes
from acl.access_request import AccessRequest, Verdict
from acl.auth.infos import acl_of
from acl.auth.model import User, UserStatus
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate_settings import GateSettings
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from sprocket.common.revision import Revision
from sprocket.engine.choice import native
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from tests.acl.matrix import Doors, Outcome
from tests.clock import ManualClock
from tests.tiers import seeds

signatures = native("sprocket.remoting.signatures_native")
pytestmark = pytest.mark.skipif(signatures is None, reason="passes need the compiled engine")

ALICE, BOB = (Credentials(name, f"secret-of-{name}") for name in ("alice12", "bobby2"))
ROUTES = (
    Route(
        RequestCode.SEND_MESSAGE_V2,
        SendMessageRequestHeaderV2,
        lambda _: None,
        Resource.TOPIC,
        Action.PUB,
        Traffic.SEND,
    ),
    Route(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, lambda _: None, Resource.GROUP, Action.SUB, Traffic.PULL),
)
SENT = {"a": "p", "b": "Orders", "c": "T", "d": "4", "e": "0", "f": "0", "g": "7", "h": "0", "j": "0", "k": "false"}
PULLED = {
    "consumerGroup": "G", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1",
}  # fmt: skip
PROPERTIES = ("", "TAGS\x01a\x02", 'K\x01"\\/\x02', "Zürich\x01日\x02", "INNER_MULTI_DISPATCH\x01%LMQ%x\x02")


class Twins:
    """Two servers with the same users, one of whose gates gives passes."""

    def __init__(self, **settings: bool) -> None:
        self.tables = AuthTables()
        for one in (ALICE, BOB):
            self.tables.create_user(User(one.access_key, one.secret_key))
        self.allow("alice12", "Topic:Orders", "Group:G")
        policy = AuthPolicy(
            AuthSettings(authentication_enabled=True, authorization_enabled=True), self.tables, required
        )
        self.gates = [Gate([policy], GateSettings(**settings), ManualClock(), cluster="c") for _ in range(2)]
        self.doors = [Doors(ROUTES, gate.stand_before) for gate in self.gates]
        self.passed = 0

    def allow(self, name: str, *resources: str, decision: str = "Allow") -> None:
        entries = [PolicyEntryInfo(resource, ["Pub", "Sub"], [], decision) for resource in resources]
        self.tables.update_acl(acl_of(AclInfo(f"User:{name}", [PolicyInfo(None, entries)])))

    def send(self, content: bytes) -> Outcome:
        """Send the same bytes to both, and compare everything that shows."""
        found = []
        for door, engine in zip(self.doors, (signatures, None), strict=True):
            with patch.object(passes, "_engine", engine):
                outcome = door.send(content)
            served = [msgspec.structs.asdict(one) | {"channel": None} for one in door.served]
            found.append((outcome, repr(served), door.is_closed, door.channel.attributes.get("proven_account")))
        self.passed += bool(self.doors[0].channel.proofs)
        assert repr(found[0]) == repr(found[1])
        counts = [(gate.refused, gate.locked_out) for gate in self.gates]
        assert counts[0] == counts[1]
        return found[0][0]

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"x", serialization: int = JSON) -> Outcome:
        return self.send(encode_request(code, 7, fields, len(body), serialization=serialization) + body)


both = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])


def request_of(chance: random.Random) -> tuple[int, dict[str, str], bytes]:
    """A request that is usually good: sometimes another's name, another key, or unsigned."""
    who = chance.choice((ALICE, ALICE, BOB, Credentials("alice12", "guessed"), Credentials("nobody", "x")))
    body = chance.choice((b"", b"x", bytes(200)))
    if chance.random() < 0.5:
        fields = {**SENT, "b": chance.choice(("Orders", "Orders", "Bills")), "i": chance.choice(PROPERTIES)}
        fields |= chance.choice(({}, {}, {"m": "false"}, {"m": "true"}, {"zz": "unknown"}))
        code = 310
    else:
        fields = {**PULLED, "topic": chance.choice(("Orders", "Orders", "Bills"))}
        fields["consumerGroup"] = chance.choice(("G", "G", "H", "Zürich"))
        code = 11
    signed = who.signed(fields, body)
    if chance.random() < 0.1:
        signed.pop(chance.choice(("Signature", "AccessKey")))
    if chance.random() < 0.1:
        signed["AccessKey"] = chance.choice(("alice12", "bobby2", ""))
    return code, signed, body


def change(twins: Twins, chance: random.Random) -> None:
    name = chance.choice(("alice12", "bobby2"))
    kind = chance.randrange(5)
    if kind == 0:
        twins.tables.update_user(name, chance.choice((f"secret-of-{name}", "another")), None, None)
    elif kind == 1:
        twins.tables.update_user(name, None, None, chance.choice(tuple(UserStatus)))
    else:
        resources = chance.sample(("Topic:Orders", "Topic:Bills", "Group:G", "Group:*"), 2)
        twins.allow(name, *resources, decision=chance.choice(("Allow", "Deny")))


@pytest.mark.parametrize("seed", seeds(16))
async def test_any_requests_and_changes(seed: int) -> None:
    chance, twins = random.Random(seed), Twins(auth_failures_burst=1000)
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served and twins.passed
    for _ in range(60):
        twins.ask(*request_of(chance), chance.choice((JSON, ROCKETMQ)))
        if chance.random() < 0.08:
            change(twins, chance)


@both
async def test_every_byte_of_a_signed_request_changed(serialization: int) -> None:
    fields = ALICE.signed({**SENT, "i": 'K\x01"é\x02'}, b"body")
    content = encode_request(310, 7, fields, 4, serialization=serialization) + b"body"
    twins = Twins(auth_failures_burst=1 << 20)
    for at in range(8, len(content)):
        assert twins.send(content).served
        changed = bytearray(content)
        changed[at] ^= 1
        twins.send(bytes(changed))
        if twins.doors[0].is_closed:
            assert twins.doors[1].is_closed
            twins = Twins(auth_failures_burst=1 << 20)


@both
async def test_what_was_admitted_once_is_refused_at_once_after_each_change(serialization: int) -> None:
    fields = ALICE.signed({**SENT, "i": ""} if serialization == JSON else SENT, b"x")
    for happens in (
        lambda twins: twins.tables.update_user("alice12", "another", None, None),
        lambda twins: twins.tables.update_user("alice12", None, None, UserStatus.DISABLE),
        lambda twins: twins.tables.delete_user("alice12"),
        lambda twins: twins.allow("alice12", "Topic:Orders", decision="Deny"),
        lambda twins: [gate.replace_policies([]) for gate in twins.gates],
    ):
        twins = Twins()
        for _ in range(3):
            assert twins.ask(310, fields, b"x", serialization).served
        assert twins.passed
        happens(twins)
        assert not twins.ask(310, fields, b"x", serialization).served


async def test_other_names_and_other_accounts_get_the_whole_check() -> None:
    twins = Twins()
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served
    assert twins.passed
    assert not twins.ask(310, ALICE.signed({**SENT, "b": "Bills"}, b"x")).served
    assert not twins.ask(310, ALICE.signed({**SENT, "i": PROPERTIES[-1]}, b"x")).served
    assert not twins.ask(310, BOB.signed(SENT, b"x")).served
    assert not twins.ask(310, {**ALICE.signed(SENT, b"x"), "AccessKey": "bobby2"}).served
    assert not twins.ask(310, SENT).served
    assert not twins.ask(310, ALICE.signed(SENT, b"x"), b"y").served
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served


async def test_a_usual_request_takes_the_pass() -> None:
    twins = Twins()
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served
    with patch.object(AuthPolicy, "check", side_effect=AssertionError("the whole check")):
        assert twins.doors[0].ask(310, ALICE.signed({**SENT, "i": PROPERTIES[1]}, b"x"), b"x", JSON).served
        assert twins.doors[0].ask(310, ALICE.signed(SENT, b"y"), b"y", ROCKETMQ).served


async def test_with_lines_for_allowed_requests_there_are_no_passes() -> None:
    twins = Twins(audit_allowed=True)
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served
    assert not twins.passed


def test_a_proof_holds_until_its_gate_or_its_policy_changes() -> None:
    text = b"accounts:\n  - {accessKey: alice12, secretKey: secret-of-alice12, topicPerms: [Orders=PUB]}\n"
    policies = (PlainPolicy({"f": parse("f", text)}),)
    revisions = Revision(), policies[0].revision
    for revision in revisions:
        numbers = tuple(one.number for one in revisions)
        proof = passes.made(policies, revisions, numbers, Verdict("alice12"), 310)
        assert proof is not None and proof.holds()
        revision.rise()
        assert not proof.holds()
    for unusual in ((*policies, *policies), ()):
        assert passes.made(unusual, revisions, (1, 1), Verdict("alice12"), 310) is None
    assert passes.made(policies, revisions, (1, 1), Verdict("bobby2"), 310) is None
    assert passes.made(policies, revisions, (1, 1), Verdict("alice12"), RequestCode.END_TRANSACTION) is None


@pytest.mark.parametrize("has_passes", [False, True])
async def test_a_change_during_a_check_counts_from_the_next_request_on(has_passes: bool) -> None:
    """Users are changed in another thread."""
    twins, check = Twins(), AuthPolicy.check
    door = twins.doors[0]
    signed = ALICE.signed(SENT, b"x")
    if has_passes:
        assert door.ask(310, signed, b"x", JSON).served

    def changed_meanwhile(self: AuthPolicy, asked: AccessRequest) -> Verdict | None:
        verdict = check(self, asked)
        twins.allow("alice12", "Topic:Orders", "Topic:Bills", decision="Deny")
        return verdict

    twins.allow("alice12", "Topic:Bills")
    with patch.object(AuthPolicy, "check", changed_meanwhile):
        assert door.ask(310, ALICE.signed({**SENT, "b": "Bills"}, b"x"), b"x", JSON).served
    assert not door.ask(310, ALICE.signed({**SENT, "b": "Bills"}, b"x"), b"x", JSON).served
    assert not door.ask(310, signed, b"x", JSON).served


async def test_policies_that_are_the_same_end_no_pass_and_others_do() -> None:
    twins = Twins()
    (gate, _), (door, _) = twins.gates, twins.doors
    assert twins.ask(310, ALICE.signed(SENT, b"x")).served
    policies = gate._policies
    for replaced, holds in ((list(policies), True), ([], False)):
        gate.replace_policies(replaced)
        assert (door.channel.proof_of(310) is not None) is holds
    gate.replace_policies(policies)
    assert door.channel.proof_of(310) is None
