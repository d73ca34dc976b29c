"""Greeting of two Sprocket brokers on the HA port, in which each proves that it knows the same secret.

The slave sends HELLO, the master WELCOME, the slave PROOF; frames follow, see `ha.session`.  The first 8 bytes of each
message are negative as a signed number.  No report of a plain slave is negative.  All numbers are big-endian.

A proof is the HMAC-SHA256, keyed with the secret, of a label of the proving end and of both messages, which contain
the nonces, the identities and the epoch.  So a proof is worthless in another connection and when it is reflected.  The
secret itself is never sent.  What follows the greeting is checked with a CRC; it is neither signed nor encrypted.

There are two versions.  Version 2 is for controller mode: the epoch is that of the controllers, and both ends exchange
the histories of their logs.  The two do not mix, because a master in controller mode counts slaves by the ids that the
controllers assigned.
"""

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ha.session import Field, Layout
from sprocket.common.errors import ProtocolError
from store.record.checksum import crc32

VERSION: Final = 1
EPOCH_VERSION: Final = 2
VERSIONS: Final = (VERSION, EPOCH_VERSION)
_MAGIC: Final = -0x53_70_72_6F_63_48_41_00
MAGIC: Final = _MAGIC - VERSION
_MAGIC_BYTES: Final = {version: struct.pack(">q", _MAGIC - version) for version in VERSIONS}
MAGIC_BYTES: Final = _MAGIC_BYTES[VERSION]
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
MAX_BODY_BYTES: Final = 4096
# No name is longer than this.
MAX_TEXT_BYTES: Final = 512

ENVELOPE: Final = Layout(
    "envelope",
    Field("magic", "q", "negative; version 2 is one less than version 1"),
    Field("kind", "B", "1 HELLO, 2 WELCOME, 3 PROOF"),
    Field("size_bytes", "I", f"bytes of the body, at most {MAX_BODY_BYTES}; a CRC-32 of all before it follows"),
)
HELLO: Final = Layout(
    "HELLO",
    Field("has_secret", "B", "1: the slave can prove that it knows a secret, and requires the same"),
    Field("nonce", f"{NONCE_BYTES}s", "random"),
    Field("broker_id", "q", "the slave's"),
)
HELLO_2: Final = Layout(
    "HELLO of version 2",
    *HELLO.fields,
    Field("epoch", "q", "the newest epoch of a master that the slave knows; -1 if none"),
    Field("flags", "B", "1: asyncLearner of the slave; 2: its syncFromLastFile"),
)
WELCOME: Final = Layout(
    "WELCOME",
    Field("is_refused", "B", "1: the connection ends here, the last text says why"),
    Field("has_secret", "B", "1: the proof below is valid"),
    Field("counts_flushed", "B", "1: the slave flushes at once what it receives"),
    Field("nonce", f"{NONCE_BYTES}s", "random"),
    Field("broker_id", "q", "the master's"),
    Field("epoch", "q", "of this master; frames repeat it"),
)
LAYOUTS: Final = (ENVELOPE, HELLO, HELLO_2, WELCOME)
_LEARNER: Final = 1
_FROM_LAST_SEGMENT: Final = 2
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")


class Kind(IntEnum):
    """Kind of a greeting's message."""

    HELLO = 1
    WELCOME = 2
    PROOF = 3


@dataclass(frozen=True)
class Identity:
    """Identity of one end: brokerClusterName, brokerName, brokerId, and the id of its store."""

    cluster: str
    broker_name: str
    broker_id: int
    store_id: str

    @property
    def place(self) -> tuple[str, str, int]:
        """Cluster, broker name and id.  Two brokers with the same place are one broker, or a mistake."""
        return self.cluster, self.broker_name, self.broker_id

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} store {self.store_id or '-'}"


@dataclass(frozen=True)
class Standing:
    """What a slave in controller mode says of itself: the newest epoch of a master that it knows (-1 if none),
    asyncLearner, and syncFromLastFile.
    """

    epoch: int = -1
    is_learner: bool = False
    from_last_segment: bool = False


@dataclass(frozen=True)
class Hello:
    """The slave's first message."""

    has_secret: bool
    nonce: bytes
    identity: Identity
    # The address that the slave connected to if it was told that address; empty if its configuration names it.
    dialed: str = ""
    # Version 2; None in version 1.
    standing: Standing | None = None

    @property
    def version(self) -> int:
        """Version of the greeting."""
        return VERSION if self.standing is None else EPOCH_VERSION

    def body(self) -> bytes:
        """Return the message without its envelope."""
        one = self.identity
        head = HELLO.struct.pack(self.has_secret, self.nonce, one.broker_id)
        if (own := self.standing) is not None:
            flags = _LEARNER * own.is_learner + _FROM_LAST_SEGMENT * own.from_last_segment
            head = HELLO_2.struct.pack(self.has_secret, self.nonce, one.broker_id, own.epoch, flags)
        dialed = (self.dialed,) if self.dialed else ()
        return head + _texts(one.cluster, one.broker_name, one.store_id, *dialed)


@dataclass(frozen=True)
class Welcome:
    """The master's answer; without a secret `proof` is zeros."""

    has_secret: bool
    nonce: bytes
    identity: Identity
    epoch: int
    refusal: str = ""
    counts_flushed: bool = False
    proof: bytes = bytes(PROOF_BYTES)

    def claims(self) -> bytes:
        """Return the message without envelope and proof."""
        one = self.identity
        flags = bool(self.refusal), self.has_secret, self.counts_flushed
        head = WELCOME.struct.pack(*flags, self.nonce, one.broker_id, self.epoch)
        return head + _texts(one.cluster, one.broker_name, one.store_id, self.refusal)

    def body(self) -> bytes:
        """Return the message without its envelope."""
        return self.claims() + self.proof


def master_proof(secret: bytes, hello: Hello, welcome: Welcome) -> bytes:
    """Return the proof that a master knows the secret."""
    return _proof(secret, b"sprocket-ha-master", hello.body(), welcome.claims())


def slave_proof(secret: bytes, hello: Hello, welcome: Welcome) -> bytes:
    """Return the proof that a slave knows the secret."""
    return _proof(secret, b"sprocket-ha-slave", hello.body(), welcome.body())


def _proof(secret: bytes, *parts: bytes) -> bytes:
    content = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.digest(secret, content, "sha256")


def is_proof(expected: bytes, given: bytes) -> bool:
    """Return whether the proofs are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(expected, given)


def is_hello(data: bytes) -> bool:
    """Return whether a connection that begins with `data` is a session; the first byte decides."""
    return data[:1] == MAGIC_BYTES[:1]


def sealed(kind: Kind, body: bytes, version: int = VERSION) -> bytes:
    """Return the whole message: envelope, body and CRC."""
    content = ENVELOPE.struct.pack(_MAGIC - version, kind, len(body)) + body
    return content + _CRC.pack(crc32(content))


class GreetingReader:
    """Reader of greeting messages, however the bytes are split; `rest` holds the bytes after the last message.

    All messages must have one version; `version` is that of the last message.
    """

    def __init__(self, versions: Sequence[int] = (VERSION,)) -> None:
        self._expected = {_MAGIC_BYTES[version]: version for version in versions}
        self.version = versions[0]
        self.rest = b""

    def feed(self, data: bytes | memoryview, expected: Kind) -> bytes | None:
        """Add `data` and return the body of the next message, which must be `expected`; None until it is complete.

        Raises ProtocolError for anything else, before more of it is kept.
        """
        self.rest += data
        head = self.rest[:8]
        if not any(magic.startswith(head) for magic in self._expected):
            known = ", ".join(f"version {version} with {magic.hex()}" for magic, version in self._expected.items())
            raise ProtocolError("ha_hello", f"it begins with {head.hex()}, {known}")
        if len(self.rest) < ENVELOPE.struct.size:
            return None
        _, kind, size_bytes = ENVELOPE.struct.unpack_from(self.rest)
        if kind != expected or size_bytes > MAX_BODY_BYTES:
            raise ProtocolError("ha_hello", f"message {kind} of {size_bytes} bytes instead of {expected.name}")
        stop = ENVELOPE.struct.size + size_bytes
        if len(self.rest) < stop + _CRC.size:
            return None
        content, (crc,) = self.rest[:stop], _CRC.unpack_from(self.rest, stop)
        if crc32(content) != crc:
            raise ProtocolError("ha_hello", f"the CRC of {expected.name} is wrong")
        self.rest = self.rest[stop + _CRC.size :]
        self.version = self._expected[head]
        self._expected = {head: self.version}
        return content[ENVELOPE.struct.size :]


def decode_hello(body: bytes, version: int = VERSION) -> Hello:
    """Decode a slave's HELLO.  Raises ProtocolError."""
    layout = HELLO if version == VERSION else HELLO_2
    texts = _decoded_texts(layout, body, 3, max_count=4)
    has_secret, nonce, broker_id, *more = layout.struct.unpack_from(body)
    standing = None
    if more:
        epoch, flags = more
        if flags & ~(_LEARNER | _FROM_LAST_SEGMENT):
            raise ProtocolError("ha_hello", f"HELLO has the unknown flags {flags}")
        standing = Standing(epoch, bool(flags & _LEARNER), bool(flags & _FROM_LAST_SEGMENT))
    dialed = texts[3] if len(texts) > 3 else ""
    identity = Identity(texts[0], texts[1], broker_id, texts[2])
    return Hello(bool(has_secret), nonce, identity, dialed, standing)


def decode_welcome(body: bytes) -> Welcome:
    """Decode a master's WELCOME.  Raises ProtocolError."""
    claims, proof = body[:-PROOF_BYTES], body[-PROOF_BYTES:]
    texts = _decoded_texts(WELCOME, claims, 4)
    is_refused, has_secret, counts_flushed, nonce, broker_id, epoch = WELCOME.struct.unpack_from(claims)
    identity = Identity(texts[0], texts[1], broker_id, texts[2])
    refusal = texts[3] or "no reason" if is_refused else ""
    return Welcome(bool(has_secret), nonce, identity, epoch, refusal, bool(counts_flushed), proof)


def _decoded_texts(layout: Layout, body: bytes, count: int, max_count: int = 0) -> list[str]:
    """Return the texts after the numbers of `layout`: `count` of them, or up to `max_count` if there are more."""
    at = layout.struct.size
    texts: list[str] = []
    while len(texts) < count or (len(texts) < max_count and at < len(body)):
        if len(body) < at + _LENGTH.size:
            raise ProtocolError("ha_hello", f"{layout.title} of {len(body)} bytes ends too early")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if length > MAX_TEXT_BYTES or at + length > len(body):
            raise ProtocolError("ha_hello", f"{layout.title} has a text of {length} bytes")
        try:
            texts.append(body[at : at + length].decode())
        except UnicodeDecodeError:
            raise ProtocolError("ha_hello", f"{layout.title} has a text that is not UTF-8") from None
        at += length
    if at != len(body):
        raise ProtocolError("ha_hello", f"{layout.title} has {len(body) - at} bytes too many")
    return texts


def _texts(*texts: str) -> bytes:
    # A long text is cut between two characters.
    encoded = [text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore").encode() for text in texts]
    return b"".join(_LENGTH.pack(len(one)) + one for one in encoded)
