"""Signed requests behind a gate: compiled calls that prove and serve a read, beside the whole check."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast
from unittest.mock import patch

from acl import passes
from acl.auth.infos import acl_of
from acl.auth.model import User
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate_settings import GateSettings
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from store.disk.disk import DiskFile
from tests.clock import ManualClock
from tests.fuzz.target import Target
from tests.fuzz.twins import ack_targets, pull_targets, send_targets
from tests.fuzz.twins.ack_targets import QUEUES, ack_header, handle_of
from tests.fuzz.twins.pop_targets import LARGE_SEGMENT_BYTES, PopTwin, made_ready, pop_header
from tests.fuzz.twins.pull_targets import pull_header
from tests.fuzz.twins.send_targets import DELAYED, PLAIN
from tests.fuzz.twins.wire_targets import rewritten
from tests.send_headers import send_header

try:
    from sprocket.remoting import signatures_native as signatures
except ImportError:  # no C compiler: `tests/engine` says so
    signatures = None  # type: ignore[assignment]

ALICE: Final = Credentials("alice12", "secret-of-alice12")
BOB: Final = Credentials("bobby2", "secret-of-bobby2")
SENDERS: Final = (ALICE, ALICE, ALICE, ALICE, BOB, Credentials("alice12", "guessed"), Credentials("nobody", "x"), None)
# Properties with a meaning, to the broker or to the gate.
NAMED: Final = (
    DELAYED, PLAIN + "INNER_MULTI_DISPATCH\x01Bills\x02", PLAIN + "xINNER_MULTI_DISPATCH\x01Bills\x02",
    PLAIN + "TIMER_DEL_UNIQKEY\x01Bills+key\x02", PLAIN + "DELTIMER_DEL_UNIQKEY\x01Bills+key\x02",
    PLAIN + "K\x01INNER_MULTI_DISPATCH\x02",
)  # fmt: skip


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


@contextmanager
def passes_of(is_native: bool) -> Iterator[None]:
    """Let the gate give passes, or take the whole check for each request."""
    with patch.object(passes, "_engine", signatures if is_native else None):
        yield


class Sender(send_targets.Twin):
    """A path of sends behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native, sync_flush=False)
        self.guard = Guard()
        with send_targets.path_of(is_native):
            self.table = self.guard.gate.stand_before(self.table)

    def serve(self, pieces: list[bytes], fail: Callable[[str, DiskFile], None] | None = None) -> list[Any]:
        with passes_of(self.is_native):
            return super().serve(pieces, fail)


class Puller(pull_targets.Twin):
    """A path of pulls behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native)
        self.guard = Guard()
        with pull_targets.path_of(is_native):
            self.table = self.guard.gate.stand_before(self.table)

    def serve(self, pieces: list[bytes]) -> list[Any]:
        """Do what `Twin.serve` does; a read's refusals come before all or before some of its other responses."""
        with passes_of(self.is_native):
            frames, *others = super().serve(pieces)
        return [sorted(frames), *others]


class Acker(ack_targets.Twin):
    """A path of acknowledgements behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native)
        # Then the timer has a queue, so the kernel serves the next ones.
        super().serve([ack(None, 0)])
        self.guard = Guard()
        with ack_targets.path_of(is_native):
            self.table = self.guard.gate.stand_before(self.table)

    def serve(self, pieces: list[bytes]) -> list[Any]:
        with passes_of(self.is_native):
            return super().serve(pieces)


class Popper(PopTwin):
    """A path of pops behind a gate."""

    def __init__(self, is_native: bool) -> None:
        super().__init__(is_native, segment_bytes=LARGE_SEGMENT_BYTES, auto_create_subscription_group=False)
        made_ready(self)
        self.guard = Guard()
        with ack_targets.path_of(is_native):
            self.table = self.guard.gate.stand_before(self.table)

    def serve(self, pieces: list[bytes]) -> list[Any]:
        with passes_of(self.is_native):
            return super().serve(pieces)


Twins = tuple[Sender, Sender] | tuple[Puller, Puller] | tuple[Acker, Acker] | tuple[Popper, Popper]
Spelling = random.Random | None


def send(
    who: Credentials | None, opaque: int, serialization: int = JSON, spelling: Spelling = None, **changes: Any
) -> bytes:
    """A send; `spelling` chooses another form of its header."""
    body = bytes(opaque % 90 + 1)
    fields = to_ext_fields(send_header(**{"queue_id": opaque % 4, "properties": PLAIN, **changes}))
    return _request(310, opaque, fields, body, who, serialization, spelling)


def pull(
    who: Credentials | None, opaque: int, serialization: int = JSON, spelling: Spelling = None, **changes: Any
) -> bytes:
    """A pull; `spelling` chooses another form of its header."""
    fields = to_ext_fields(pull_header(**{"queue_offset": opaque % 50, "max_msg_nums": 4, **changes}))
    return _request(11, opaque, fields, b"", who, serialization, spelling)


def ack(
    who: Credentials | None, opaque: int, serialization: int = JSON, spelling: Spelling = None, **changes: Any
) -> bytes:
    """An acknowledgement; `spelling` chooses another form of its header."""
    header = ack_header(handle_of(queue_id=opaque % QUEUES, queue_offset=opaque % 50), **changes)
    return _request(int(RequestCode.ACK_MESSAGE), opaque, to_ext_fields(header), b"", who, serialization, spelling)


def pop(
    who: Credentials | None, opaque: int, serialization: int = JSON, spelling: Spelling = None, **changes: Any
) -> bytes:
    """A pop; `spelling` chooses another form of its header."""
    header = pop_header(**{"queue_id": opaque % QUEUES, "max_msg_nums": 2, **changes})
    return _request(int(RequestCode.POP_MESSAGE), opaque, to_ext_fields(header), b"", who, serialization, spelling)


def _request(
    code: int, opaque: int, fields: dict[str, str], body: bytes, who: Credentials | None, serialization: int,
    spelling: Spelling,
) -> bytes:  # fmt: skip
    signed = fields if who is None else who.signed(fields, body)
    frame = encode_request(code, opaque, signed, len(body), serialization=serialization)
    if spelling is not None and serialization == JSON:
        frame = rewritten(spelling, frame)
    return frame + body


def sends_of(chance: random.Random, share: float) -> bytes:
    """One read of sends; `share` of them are plain ones of one account."""
    changes = ({}, {"topic": "Bills"}, {"batch": True}, *({"properties": one} for one in NAMED))
    return _read_of(send, changes, chance, share)


def pulls_of(chance: random.Random, share: float) -> bytes:
    """One read of pulls, and so on."""
    changes = ({}, {"topic": "Empty"}, {"consumer_group": "Off"}, {"queue_offset": 1000})
    return _read_of(pull, changes, chance, share)


def _read_of(one: Callable[..., bytes], odd: Sequence[dict[str, Any]], chance: random.Random, share: float) -> bytes:
    content = b""
    for opaque in range(chance.choice((1, 8, 40))):
        serialization = chance.choice((JSON, ROCKETMQ))
        if chance.random() < share:
            content += one(ALICE, opaque, serialization)
        else:
            changes, spelling = chance.choice(odd), chance.choice((None, None, chance))
            content += one(chance.choice(SENDERS), opaque, serialization, spelling, **changes)
    return content


def acks_of(chance: random.Random, share: float) -> bytes:
    changes = ({}, {"topic": "Unknown"}, {"consumer_group": "Other"}, {"topic": "%RETRY%CG_Orders"}, {"offset": 1000})
    return _read_of(ack, changes, chance, share)


def pops_of(chance: random.Random, share: float) -> bytes:
    changes = ({}, {"topic": "Empty"}, {"consumer_group": "Quiet"}, {"exp": "A"}, {"invisible_time": -1})
    return _read_of(pop, changes, chance, share)


def compare(twins: Twins, reads: list[bytes], seed: int = 0) -> None:
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


def sends_twins(data: bytes) -> None:
    """Reads of signed sends that `data` chooses, each with a changed byte or not, between changes of the accounts."""
    if signatures is not None:
        compare((Sender(False), Sender(True)), list(reads_of(data, sends_of)), seed=len(data) + 1)


def pulls_twins(data: bytes) -> None:
    """The same for signed pulls."""
    if signatures is not None:
        compare((Puller(False), Puller(True)), list(reads_of(data, pulls_of)), seed=len(data) + 1)


def acks_twins(data: bytes) -> None:
    """The same for signed acknowledgements."""
    if signatures is not None:
        compare((Acker(False), Acker(True)), list(reads_of(data, acks_of)), seed=len(data) + 1)


def pops_twins(data: bytes) -> None:
    """The same for signed pops."""
    if signatures is not None:
        compare((Popper(False), Popper(True)), list(reads_of(data, pops_of)), seed=len(data) + 1)


def reads_of(data: bytes, made: Callable[[random.Random, float], bytes]) -> Iterator[bytes]:
    """Reads, some with changed bytes; then `data` itself."""
    chance = random.Random(data)
    for _ in range(4):
        read = bytearray(made(chance, chance.choice((0.7, 0.95, 1.0))))
        for _ in range(chance.choice((0, 0, 1, 3))):
            read[chance.randrange(len(read))] ^= 1 << chance.randrange(8)
        yield bytes(read)
    yield data


_SENDS: Final = [b"".join(send(ALICE, n, n % 2) for n in range(at, at + 4)) for at in (0, 4)]
_PULLS: Final = [b"".join(pull(ALICE, n, n % 2) for n in range(at, at + 4)) for at in (0, 4)]
_ACKS: Final = [b"".join(ack(ALICE, n, n % 2) for n in range(at, at + 4)) for at in (0, 4)]
_POPS: Final = [b"".join(pop(ALICE, n, n % 2) for n in range(at, at + 4)) for at in (0, 4)]

ENGINE_GATE_TARGETS: Final = (
    Target("guarded_send_twins", sends_twins, _SENDS, 1 << 16),
    Target("guarded_pull_twins", pulls_twins, _PULLS, 1 << 16),
    Target("guarded_ack_twins", acks_twins, _ACKS, 1 << 16),
    Target("guarded_pop_twins", pops_twins, _POPS, 1 << 16),
)
