"""Greeting of two members: each proves that it knows the group's secret, and tells its group and its id.

The member with the lower id connects and sends HELLO; WELCOME, PROOF and ACCEPTED follow.  Each is a size u32 and
MessagePack.  A proof is the HMAC-SHA256, keyed with the secret, of a label of the proving end and of HELLO and WELCOME,
which contain nonces, group, member ids and disks.  So it is worthless in another connection, group or direction.  The
secret also makes the key with which every later frame is signed (`ha.raft.frames`).

HELLO has a proof of its own contents, so a stranger learns nothing: it is refused without claims and disks.  Members of
older versions send HELLO without that proof, and prove themselves in PROOF alone.

Without a secret at both ends nothing is proved; a secret at one end alone is a refusal.
"""

import hmac
import struct
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from sprocket.common.errors import ProtocolError

VERSION: Final = 1
NONCE_BYTES: Final = 32
MAX_GREETING_BYTES: Final = 16 * 1024
_SIZE: Final = struct.Struct(">I")
_MAGIC: Final = "sprocket-raft"
_SECRET: Final = "the members have different secrets: configure the same one on each"
T = TypeVar("T", bound=msgspec.Struct)


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """What a member says of itself: its group with all members, its id, its disk, and the end of its log.

    `is_fresh`: it has never taken part in an election.
    """

    group: str
    members: str
    member_id: str
    disk_id: str
    starts: int
    is_fresh: bool
    last_term: int
    last_index: int


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """First message, of the member that connects.  `to` is the id of the member that it wants."""

    magic: str
    version: int
    claims: Claims
    to: str
    nonce: bytes
    has_secret: bool
    proof: bytes = b""

    @property
    def bare(self) -> tuple[object, ...]:
        """The fields that proofs cover."""
        return (self.magic, self.version, self.claims, self.to, self.nonce, self.has_secret)


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `Hello`.  `refusal` is empty, or the reason why the connection ends here."""

    claims: Claims
    nonce: bytes
    has_secret: bool
    refusal: str
    proof: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """Proof of the member that connected; `refusal` as in `Welcome`."""

    refusal: str
    proof: bytes


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """Last message: the proof was right, or `refusal`."""

    refusal: str


@dataclass(frozen=True)
class Met:
    """Result of a greeting: the other member, and the key of this connection."""

    claims: Claims
    key: bytes


def pack(message: msgspec.Struct) -> bytes:
    """Return the bytes of a greeting's message."""
    content = msgspec.msgpack.encode(message)
    return _SIZE.pack(len(content)) + content


def greeting_size(head: bytes) -> int:
    """Return the size that the first 4 bytes announce.  Raises `ProtocolError`."""
    (size_bytes,) = _SIZE.unpack(head)
    if not 0 < size_bytes <= MAX_GREETING_BYTES:
        raise ProtocolError("raft_greeting", f"a message of {size_bytes} bytes: the maximum is {MAX_GREETING_BYTES}")
    return int(size_bytes)


def unpack(content: bytes, kind: type[T]) -> T:
    """Return a greeting's message from its bytes without the size.  Raises `ProtocolError`."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("raft_greeting", f"no {kind.__name__}: {error}") from None


class Dialer:
    """The end that connects, to the member `to`."""

    def __init__(self, claims: Claims, to: str, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        bare = Hello(_MAGIC, VERSION, claims, to, nonce, bool(secret))
        self.hello = msgspec.structs.replace(bare, proof=_proof_of_hello(secret, bare)) if secret else bare

    def reason_against(self, welcome: Welcome) -> str:
        """Return why the other end is not who it should be; empty if it is."""
        hello = self.hello
        reason = _reason_against(hello.claims, welcome.claims, hello.has_secret, welcome.has_secret)
        if not reason and welcome.claims.member_id != hello.to:
            reason = f"member {hello.to} was called, and {welcome.claims.member_id} answers"
        if not reason and self._secret and not hmac.compare_digest(self._digest(b"accept", welcome), welcome.proof):
            reason = f"the proof of member {hello.to} is wrong: {_SECRET}"
        return reason

    def proof(self, welcome: Welcome) -> bytes:
        """Return this end's proof."""
        return self._digest(b"dial", welcome) if self._secret else b""

    def met(self, welcome: Welcome) -> Met:
        """Return the result."""
        return Met(welcome.claims, self._digest(b"frames", welcome))

    def _digest(self, label: bytes, welcome: Welcome) -> bytes:
        return _digest(self._secret, label, self.hello, welcome)


class Acceptor:
    """The end to which `hello` came.

    `is_proven` is whether HELLO comes from a member of the group; a HELLO without proof may come from an older version
    if `may_be_older`.
    """

    def __init__(
        self,
        claims: Claims,
        hello: Hello,
        secret: bytes,
        nonce: bytes,
        refusal: str = "",
        *,
        may_be_older: bool = True,
    ) -> None:
        """Judge `hello`; `refusal` is a reason of the caller's own."""
        self._secret = secret
        self._hello = hello
        self._bare = Welcome(claims, nonce, bool(secret), "", b"")
        self.is_proven = bool(secret) and hmac.compare_digest(_proof_of_hello(secret, hello), hello.proof)
        reason = self._reason()
        if not reason and secret and not self.is_proven and (hello.proof or not may_be_older):
            reason = f"the proof of member {hello.claims.member_id} is wrong: {_SECRET}"
        self.refusal = reason or refusal
        told = self.refusal
        if told and not self.is_proven:
            self._bare = Welcome(Claims("", "", claims.member_id, "", 0, False, 0, 0), nonce, bool(secret), "", b"")
            if secret and not reason:
                told = f"the log of member {claims.member_id} says why"
        proof = self._digest(b"accept") if secret and not self.refusal else b""
        self.welcome = msgspec.structs.replace(self._bare, refusal=told, proof=proof)

    def _reason(self) -> str:
        hello, own = self._hello, self._bare.claims
        if hello.magic != _MAGIC or hello.version != VERSION:
            return f"version {hello.version} of {hello.magic!r} is unknown: {_MAGIC} {VERSION} is expected"
        reason = _reason_against(own, hello.claims, self._bare.has_secret, hello.has_secret)
        if not reason and hello.to != own.member_id:
            reason = f"this is member {own.member_id}, not {hello.to}: check the addresses of the members"
        return reason

    def check(self, proof: Proof) -> str:
        """Return why the proof is refused; empty if it is not."""
        if proof.refusal:
            return proof.refusal
        if self._secret and not hmac.compare_digest(self._digest(b"dial"), proof.proof):
            return f"the proof of member {self._hello.claims.member_id} is wrong: {_SECRET}"
        return ""

    def met(self) -> Met:
        """Return the result."""
        return Met(self._hello.claims, self._digest(b"frames"))

    def _digest(self, label: bytes) -> bytes:
        return _digest(self._secret, label, self._hello, self._bare)


def _reason_against(own: Claims, other: Claims, here: bool, there: bool) -> str:
    if other.group != own.group:
        return f"this is group {own.group}, not {other.group}"
    if other.members != own.members:
        return f"the members of group {own.group} are others here than at {other.member_id}: compare their addresses"
    if other.member_id == own.member_id:
        return f"another process also says that it is member {own.member_id}"
    if here and not there:
        return f"member {other.member_id} has no secret, and {own.member_id} requires one"
    if there and not here:
        return f"member {other.member_id} requires a secret, and {own.member_id} has none"
    return ""


def _digest(secret: bytes, label: bytes, hello: Hello, welcome: Welcome) -> bytes:
    bare = Welcome(welcome.claims, welcome.nonce, welcome.has_secret, "", b"")
    parts = (b"sprocket raft " + label, msgspec.msgpack.encode(hello.bare), msgspec.msgpack.encode(bare))
    return hmac.digest(secret, b"".join(_SIZE.pack(len(part)) + part for part in parts), "sha256")


def _proof_of_hello(secret: bytes, hello: Hello) -> bytes:
    return hmac.digest(secret, b"sprocket raft hello" + msgspec.msgpack.encode(hello.bare), "sha256")
