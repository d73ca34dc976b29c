"""Behind an access gate the compiled paths of sends and pulls give what the Python paths and the whole check give."""

import random
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

import pytest

from acl.auth.infos import acl_of
from acl.auth.model import User
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate_settings import GateSettings
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.routes import RouteTable
from tests.clock import ManualClock
from tests.fuzz import engine_pull_targets, engine_send_targets
from tests.fuzz.engine_pull_targets import pull_header
from tests.fuzz.engine_send_targets import DELAYED, USUAL, compiled, path_of
from tests.fuzz.target import pieces_of
from tests.send_headers import send_header
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")

ALICE, BOB = (Credentials(name, f"secret-of-{name}") for name in ("alice12", "bobby2"))
SENDERS = (ALICE, ALICE, ALICE, ALICE, BOB, Credentials("alice12", "guessed"), Credentials("nobody", "x"), None)
both = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])


class Guard:
    """A gate with two users, of whom the first may do everything with one topic and group."""

    def __init__(self) -> None:
        self.tables = AuthTables()
        for one in (ALICE, BOB):
            self.tables.create_user(User(one.access_key, one.secret_key))
        self.decide("alice12", "Allow")
        settings = AuthSettings(authentication_enabled=True, authorization_enabled=True)
        policy = AuthPolicy(settings, self.tables, required)
        self.gate = Gate([policy], GateSettings(auth_failures_burst=1 << 20), ManualClock(), cluster="c")

    def decide(self, name: str, decision: str) -> None:
        entries = [PolicyEntryInfo(one, ["Pub", "Sub"], [], decision) for one in ("Topic:Orders", "Group:*")]
        self.tables.update_acl(acl_of(AclInfo(f"User:{name}", [PolicyInfo(None, entries)])))

    def before(self, table: RouteTable, is_native: bool) -> RouteTable:
        with path_of(is_native):
            return self.gate.stand_before(table)


class Sender(engine_send_targets.Twin):
    """A path of sends behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native, sync_flush=False)
        self.guard = Guard()
        self.table = self.guard.before(self.table, is_native)


class Puller(engine_pull_targets.Twin):
    """A path of pulls behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native)
        self.guard = Guard()
        self.table = self.guard.before(self.table, is_native)

    def serve(self, pieces: list[bytes]) -> list[Any]:
        """Do what `Twin.serve` does; a read's refusals come before all or before some of its other responses."""
        frames, *others = super().serve(pieces)
        return [sorted(frames), *others]


def send(who: Credentials | None, opaque: int, serialization: int = JSON, **changes: Any) -> bytes:
    body = bytes(opaque % 90 + 1)
    fields = to_ext_fields(send_header(**{"queue_id": opaque % 4, "properties": USUAL, **changes}))
    signed = fields if who is None else who.signed(fields, body)
    return encode_request(310, opaque, signed, len(body), serialization=serialization) + body


def pull(who: Credentials | None, opaque: int, serialization: int = JSON, **changes: Any) -> bytes:
    fields = to_ext_fields(pull_header(**{"queue_offset": opaque % 50, "max_msg_nums": 4, **changes}))
    return encode_request(11, opaque, fields if who is None else who.signed(fields, b""), serialization=serialization)


def sends_of(chance: random.Random, share: float) -> bytes:
    """One read of sends; `share` of them are usual ones of one account."""
    content = b""
    for opaque in range(chance.choice((1, 8, 40))):
        serialization = chance.choice((JSON, ROCKETMQ))
        if chance.random() < share:
            content += send(ALICE, opaque, serialization)
        else:
            changes = chance.choice(({}, {"topic": "Bills"}, {"properties": DELAYED}, {"batch": True}))
            content += send(chance.choice(SENDERS), opaque, serialization, **changes)
    return content


def pulls_of(chance: random.Random, share: float) -> bytes:
    content = b""
    for opaque in range(chance.choice((1, 8, 40))):
        serialization = chance.choice((JSON, ROCKETMQ))
        if chance.random() < share:
            content += pull(ALICE, opaque, serialization)
        else:
            changes = chance.choice(({}, {"topic": "Empty"}, {"consumer_group": "Off"}, {"queue_offset": 1000}))
            content += pull(chance.choice(SENDERS), opaque, serialization, **changes)
    return content


def compare(twins: tuple[Sender, Sender] | tuple[Puller, Puller], reads: list[bytes], seed: int = 0) -> None:
    """Serve the same reads by both, with the same changes of the accounts between them."""

    def changing(guard: Guard) -> Iterator[bytes]:
        chance = random.Random(seed)
        for read in reads:
            yield read
            if seed and chance.random() < 0.3:
                guard.decide(chance.choice(("alice12", "bobby2")), chance.choice(("Allow", "Allow", "Deny")))
            if seed and chance.random() < 0.1:
                guard.tables.update_user("alice12", chance.choice((ALICE.secret_key, "another")), None, None)

    found = [[*twin.serve(cast(Any, changing(twin.guard))), twin.guard.gate.refused] for twin in twins]
    for one, other in zip(*found, strict=True):
        assert one == other, (one, other)


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_signed_sends_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    reads = [sends_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)]
    compare((Sender(False), Sender(True)), reads, seed)
    compare((Sender(False), Sender(True)), pieces_of(reads[0]))


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_signed_pulls_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    compare((Puller(False), Puller(True)), [pulls_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)], seed)


@both
def test_a_changed_bit_in_a_read_of_signed_sends(serialization: int) -> None:
    """Some change no proof: framing, or what no signature covers."""
    read = b"".join(send(ALICE, n, serialization) for n in range(2))
    twins = Sender(False), Sender(True)
    for at in range(8, len(read), 3):
        changed = bytearray(read)
        changed[at] ^= 1 << at % 8
        compare(twins, [send(ALICE, 0, serialization), bytes(changed)])


@both
def test_usual_signed_sends_are_handled_compiled_from_the_first_pass_on(serialization: int) -> None:
    twin = Sender(True)
    twin.serve([b"".join(send(ALICE, n, serialization) for n in range(4))])
    stored: list[int] = []
    append = twin.store.append_usual
    with patch.object(twin.store, "append_usual", lambda group: (stored.append(len(group)), append(group))[1]):
        twin.serve([b"".join(send(ALICE, n, serialization) for n in range(16))] * 2)
        assert sum(stored) == 32
        twin.serve([b"".join(send(BOB, n, serialization) for n in range(16))])
        twin.serve([b"".join(send(None, n, serialization) for n in range(16))])
        assert sum(stored) == 32
    assert twin.guard.gate.refused == 32


@both
def test_usual_signed_pulls_are_handled_compiled(serialization: int) -> None:
    twin = Puller(True)
    reads, counts = twin.store.usual_reads, []
    found = reads.found
    with patch.object(reads, "found", lambda count, messages: (counts.append(count), found(count, messages))):
        twin.serve([b"".join(pull(ALICE, n, serialization) for n in range(8))])
        assert sum(counts) == 8
        twin.serve([b"".join(pull(BOB, n, serialization) for n in range(8))])
        assert sum(counts) == 8
