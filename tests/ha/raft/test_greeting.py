"""Who may be a member's peer: proofs, groups, identities; and frames that were changed."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ha.raft import greeting
from ha.raft.consensus import Member
from ha.raft.core import Group
from ha.raft.frames import FrameReader, FrameWriter
from ha.raft.greeting import Acceptor, Claims, Dialer, Hello, Proof, Welcome, greeting_size, pack, unpack
from ha.raft.messages import MAX_FRAME_BYTES, Append, Appended, Message, RequestVote, Vote, encode
from ha.raft.peers import Event, Inbox, Link, Security, TcpPeers
from sprocket.common.errors import ProtocolError
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from tests.ha.raft.groups import LocalGroup
from tests.remoting.tls_files import Files
from tests.waiting import until

_KEY = bytes(32)
_NONCE = bytes(greeting.NONCE_BYTES)


def _claims(member_id: str, group: str = "g", members: str = "n0-a:1;n1-b:2") -> Claims:
    return Claims(group, members, member_id, member_id * 4, 1, False, 1, 5)


def _greet(
    own: Claims, other: Claims, *, to: str = "n1", secrets_: tuple[bytes, bytes] = (b"s", b"s")
) -> tuple[str, str]:
    """Return what the two ends say; both are empty if they agree."""
    dialer = Dialer(own, to, secrets_[0], _NONCE)
    acceptor = Acceptor(other, dialer.hello, secrets_[1], bytes(reversed(range(32))))
    if acceptor.refusal:
        return "", acceptor.refusal
    if reason := dialer.reason_against(acceptor.welcome):
        return reason, ""
    return "", acceptor.check(Proof("", dialer.proof(acceptor.welcome)))


def test_two_members_with_one_secret_meet_and_have_one_key() -> None:
    dialer = Dialer(_claims("n0"), "n1", b"s", _NONCE)
    acceptor = Acceptor(_claims("n1"), dialer.hello, b"s", bytes(range(32)))
    assert not dialer.reason_against(acceptor.welcome)
    assert not acceptor.check(Proof("", dialer.proof(acceptor.welcome)))
    assert dialer.met(acceptor.welcome).key == acceptor.met().key
    other = Acceptor(_claims("n1"), dialer.hello, b"s", bytes(32))
    assert other.met().key != acceptor.met().key


@pytest.mark.parametrize(
    ("own", "other", "to", "secrets_", "words"),
    [
        (_claims("n0", group="h"), _claims("n1"), "n1", (b"s", b"s"), "this is group g, not h"),
        (_claims("n0", members="n0-a:1"), _claims("n1"), "n1", (b"s", b"s"), "the members of group g are others"),
        (_claims("n1"), _claims("n1"), "n1", (b"s", b"s"), "another process also says that it is member n1"),
        (_claims("n0"), _claims("n2"), "n1", (b"s", b"s"), "this is member n2, not n1"),
        (_claims("n0"), _claims("n1"), "n1", (b"s", b"t"), "the proof of member n0 is wrong"),
        (_claims("n0"), _claims("n1"), "n1", (b"", b"t"), "has no secret"),
        (_claims("n0"), _claims("n1"), "n1", (b"s", b""), "requires a secret"),
    ],
)
def test_a_stranger_is_refused_by_name(
    own: Claims, other: Claims, to: str, secrets_: tuple[bytes, bytes], words: str
) -> None:
    assert words in "".join(_greet(own, other, to=to, secrets_=secrets_))


def test_without_secrets_nothing_is_proved() -> None:
    assert _greet(_claims("n0"), _claims("n1"), secrets_=(b"", b"")) == ("", "")


def test_a_wrong_proof_of_the_member_that_connects_is_refused() -> None:
    dialer = Dialer(_claims("n0"), "n1", b"s", _NONCE)
    acceptor = Acceptor(_claims("n1"), dialer.hello, b"s", bytes(32))
    for proof in (b"", bytes(32), acceptor.welcome.proof):
        assert "proof of member n0 is wrong" in acceptor.check(Proof("", proof))


class _OlderHello(msgspec.Struct, frozen=True, array_like=True):
    magic: str
    version: int
    claims: Claims
    to: str
    nonce: bytes
    has_secret: bool


def test_members_of_an_older_version_meet_those_of_this_one() -> None:
    """They send HELLO without its proof, ignore the proof, and make the same digests."""
    dialer = Dialer(_claims("n0"), "n1", b"s", _NONCE)
    sent = pack(dialer.hello)[4:]
    assert msgspec.msgpack.encode(dialer.hello.bare) == msgspec.msgpack.encode(
        msgspec.msgpack.decode(sent, type=_OlderHello)
    )
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(dialer.hello.bare), type=Hello)
    acceptor = Acceptor(_claims("n1"), older, b"s", bytes(32))
    assert not acceptor.is_proven and not dialer.reason_against(acceptor.welcome)
    assert not acceptor.check(Proof("", dialer.proof(acceptor.welcome)))


@pytest.mark.parametrize(
    ("hello", "may_be_older"),
    [
        (Hello("sprocket-raft", 1, _claims("n0"), "n1", _NONCE, True), False),
        (Hello("sprocket-raft", 1, _claims("n0"), "n1", _NONCE, True, b"a guess"), True),
        (Hello("sprocket-raft", 1, _claims("n0"), "n1", _NONCE, False), True),
        (Hello("sprocket-raft", 1, _claims("n0", members="guessed"), "n1", _NONCE, True), True),
        (Hello("sprocket-raft", 1, _claims("n0", group="guessed"), "n1", _NONCE, True), True),
        (Dialer(_claims("n0"), "n1", b"guessed", _NONCE).hello, True),
    ],
)
def test_a_stranger_learns_no_address_and_no_disk(hello: Hello, may_be_older: bool) -> None:
    own = _claims("n1", members="n0-secret-host:1;n1-other-host:2") if "guessed" in hello.claims.members else None
    acceptor = Acceptor(own or _claims("n1"), hello, b"s", bytes(32), may_be_older=may_be_older)
    told = pack(acceptor.welcome)
    assert acceptor.refusal and acceptor.welcome.refusal
    for word in (b"host", b"n1-b", b"n1n1n1n1"):
        assert word not in told


def test_why_the_caller_was_judged_is_told_to_members_alone() -> None:
    for hello, is_told in (
        (Dialer(_claims("n0"), "n1", b"s", _NONCE).hello, True),
        (Hello("sprocket-raft", 1, _claims("n0"), "n1", _NONCE, True), False),
    ):
        acceptor = Acceptor(_claims("n1"), hello, b"s", bytes(32), "known with disk 1234")
        assert acceptor.refusal == "known with disk 1234"
        assert ("1234" in acceptor.welcome.refusal) is is_told


def test_a_proof_is_worthless_with_other_claims() -> None:
    """An impostor who relays a greeting cannot change what a member says of itself."""
    dialer = Dialer(_claims("n0"), "n1", b"s", _NONCE)
    acceptor = Acceptor(_claims("n1"), dialer.hello, b"s", bytes(32))
    changed = Welcome(_claims("n1"), bytes(32), True, "", acceptor.welcome.proof)
    assert not dialer.reason_against(changed)
    for field, value in (("disk_id", "other"), ("starts", 9), ("is_fresh", True), ("last_index", 6)):
        claims = _claims("n1").__class__(*(value if name == field else getattr(_claims("n1"), name)
                                           for name in Claims.__struct_fields__))  # fmt: skip
        forged = Welcome(claims, bytes(32), True, "", acceptor.welcome.proof)
        assert "proof of member n1 is wrong" in dialer.reason_against(forged)


@pytest.mark.parametrize("head", [bytes(4), b"\xff\xff\xff\xff", (greeting.MAX_GREETING_BYTES + 1).to_bytes(4, "big")])
def test_a_size_is_refused_before_anything_is_read(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="raft_greeting"):
        greeting.greeting_size(head)


def test_an_unknown_version_is_named() -> None:
    hello = Hello("sprocket-raft", 2, _claims("n0"), "n1", _NONCE, False)
    assert "version 2" in Acceptor(_claims("n1"), hello, b"", _NONCE).refusal


# Frames

_MESSAGES: list[Message] = [
    Append(3, 2, 1, 1, [(b"\x00x", 2, 1), (b"\x01", 3, 3)]),
    Appended(3, 4, False, True),
    RequestVote(4, 3, 3),
    Vote(4),
]


def _frames() -> list[bytes]:
    writer = FrameWriter(_KEY, "n0")
    return [writer.frame(message) for message in _MESSAGES]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_messages_are_the_same_however_the_bytes_are_split(size: int) -> None:
    content = b"".join(_frames())
    reader = FrameReader(_KEY, "n0")
    found = [one for at in range(0, len(content), size) for one in reader.feed(content[at : at + size])]
    assert found == _MESSAGES


def test_a_frame_that_was_changed_left_out_repeated_or_turned_round_is_refused() -> None:
    frames = _frames()
    changed = bytearray(frames[0])
    changed[9] ^= 1
    for bad in (bytes(changed), frames[1], frames[0] + frames[0], frames[0] + frames[2]):
        with pytest.raises(ProtocolError, match="tag"):
            FrameReader(_KEY, "n0").feed(bad)
    for reader in (FrameReader(_KEY, "n1"), FrameReader(bytes(31) + b"1", "n0")):
        with pytest.raises(ProtocolError, match="tag"):
            reader.feed(frames[0])


def test_a_frame_that_is_too_large_is_refused_at_its_head() -> None:
    for size_bytes in (0, MAX_FRAME_BYTES + 1, 2**32 - 1):
        with pytest.raises(ProtocolError, match="raft_frame"):
            FrameReader(_KEY, "n0").feed(size_bytes.to_bytes(4, "big"))


@pytest.mark.parametrize(
    "message",
    [
        Append(3, 2, 1, 1, [(b"\x02x", 2, 1)]),  # a membership change, which pysyncobj would unpickle
        Append(3, 2, 1, 1, [(b"\x03x", 2, 1)]),  # a version, which it would unpickle
        Append(3, 2, 1, 1, [(b"", 2, 1)]),
        Append(3, 2, 1, 1, [(b"\x00x", 3, 1)]),
        Append(3, 2, 1, 2, [(b"\x00x", 2, 1)]),
        Append(3, 2, 1, 1, [(b"\x00x", 2, 4)]),
        Append(3, 2, 0, 0, []),
        Append(3, 2, 1, 1, [(b"\x00" + bytes(300_000), 2, 1)]),
    ],
)
def test_entries_that_no_leader_sends_are_refused(message: Message) -> None:
    with pytest.raises(ProtocolError, match="raft_entry"):
        FrameReader(_KEY, "n0").feed(FrameWriter(_KEY, "n0").frame(message))


def test_what_is_no_message_is_refused() -> None:
    from ha.raft.messages import decode

    for content in (b"", b"\x00", b"\x92\x04\xff", encode(Vote(1)) + b"x", b"\x93\x04\x01\x02", b"\x92\x63\x01",
                    b"\x92\x04\xcf" + b"\xff" * 8):  # fmt: skip
        with pytest.raises(ProtocolError, match="raft_message"):
            decode(content)


# Sockets


class _Node:
    """Connections of one member that runs no Raft."""

    def __init__(
        self,
        member_id: str,
        places: list[Member],
        secret: bytes,
        group: str = "g",
        server: TlsSettings | None = None,
        client: TlsSettings | None = None,
    ) -> None:
        own = next(one for one in places if one.id == member_id)
        self.inbox = Inbox()
        security = Security(
            secrets.token_bytes, secret, None if server is None else ServerTls(server),
            (lambda: None) if client is None else ClientTls(client).context,
        )  # fmt: skip
        self.peers = TcpPeers(own, places, security)
        self._claims = replace_claims(_claims(member_id, group), Group(group, places, member_id).text)

    async def start(self) -> None:
        await self.peers.start(self.inbox, lambda: self._claims, lambda claims: "")

    async def events(self, count: int, limit_s: float = 5.0) -> list[Event]:
        found: list[Event] = []
        async with asyncio.timeout(limit_s):
            while len(found) < count:
                found += self.inbox.take()
                await asyncio.sleep(0.01)
        return found


def replace_claims(claims: Claims, members: str) -> Claims:
    return Claims(claims.group, members, *(getattr(claims, name) for name in Claims.__struct_fields__[2:]))


@pytest.fixture
async def nodes() -> AsyncIterator[list[_Node]]:
    nodes: list[_Node] = []
    yield nodes
    for node in nodes:
        await node.peers.close()


async def _started(nodes: list[_Node], *made: _Node) -> list[_Node]:
    nodes += made
    for node in made:
        await node.start()
    return nodes


async def test_messages_go_both_ways_and_an_end_is_told(nodes: list[_Node], tmp_path: Path) -> None:
    places = LocalGroup(tmp_path, 2).places
    first, second = await _started(nodes, _Node("n0", places, b"s"), _Node("n1", places, b"s"))
    [begun] = await first.events(1)
    [answering] = await second.events(1)
    link: Link = begun.link
    assert link.claims.member_id == "n1" and answering.link.claims.member_id == "n0"
    for message in _MESSAGES:
        link.send(message)
        answering.link.send(message)
    assert [one.message for one in await first.events(4)] == _MESSAGES
    assert [one.message for one in await second.events(4)] == _MESSAGES
    link.abort("the test says so")
    ended, again = await second.events(2)
    assert not ended.is_open and ended.link is answering.link
    assert again.is_open and again.message is None


@pytest.mark.parametrize(("secret", "group"), [(b"other", "g"), (b"", "g"), (b"s", "h")])
async def test_a_stranger_gets_no_link(
    nodes: list[_Node], tmp_path: Path, secret: bytes, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    places = LocalGroup(tmp_path, 2).places
    first, second = await _started(nodes, _Node("n0", places, b"s"), _Node("n1", places, secret, group))
    await until(lambda: "raft_link_refused" in caplog.text)
    await asyncio.sleep(0.5)
    assert not first.inbox.take() and not second.inbox.take()
    refusals = [one for one in caplog.messages if "raft_link_refused" in one]
    assert len(refusals) == len(set(refusals))


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, bytes(64), b"\x00\x00\x00\x05hello"])
async def test_garbage_on_the_port_is_closed(nodes: list[_Node], tmp_path: Path, content: bytes) -> None:
    places = LocalGroup(tmp_path, 2).places
    [node] = await _started(nodes, _Node("n1", places, b"s"))
    reader, writer = await asyncio.open_connection(places[1].host, places[1].port)
    writer.write(content)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert not node.inbox.take()


@asynccontextmanager
async def _flood(place: Member, content: bytes) -> AsyncIterator[None]:
    """100 connections that send `content` and nothing more; each that is closed is opened again."""

    async def one() -> None:
        while True:
            reader, writer = await asyncio.open_connection(place.host, place.port)
            try:
                writer.write(content)
                await reader.read()
            except OSError:
                pass
            finally:
                writer.close()

    tasks = [asyncio.create_task(one()) for _ in range(100)]
    try:
        await asyncio.sleep(0.2)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("content", [b"", b"\x16", b"\x00"])
@pytest.mark.parametrize("is_tls", [False, True])
async def test_silent_connections_keep_no_member_out(
    nodes: list[_Node], tmp_path: Path, content: bytes, is_tls: bool
) -> None:
    places = LocalGroup(tmp_path, 2).places
    files = Files(tmp_path / "tls")
    server, client = (files.server("127.0.0.1"), files.client()) if is_tls else (None, None)
    made = [_Node(name, places, b"s", server=server, client=client) for name in ("n1", "n0")]
    await _started(nodes, made[0])
    async with _flood(places[1], content):
        await _started(nodes, made[1])
        [begun] = await made[1].events(1, 30)
        assert begun.link.claims.member_id == "n1"


async def test_a_member_that_proves_hello_cannot_be_impersonated_without(nodes: list[_Node], tmp_path: Path) -> None:
    places = LocalGroup(tmp_path, 2).places
    first, second = await _started(nodes, _Node("n0", places, b"s"), _Node("n1", places, b"s"))
    assert await first.events(1) and await second.events(1)
    # It knows everything but the secret.
    for name, place in (("n0", places[1]), ("n1", places[0])):
        other = "n1" if name == "n0" else "n0"
        claims = replace_claims(_claims(name), Group("g", places, name).text)
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(pack(Hello("sprocket-raft", 1, claims, other, _NONCE, True)))
        welcome = unpack(await reader.readexactly(greeting_size(await reader.readexactly(4))), Welcome)
        assert welcome.refusal and not welcome.claims.disk_id and not welcome.claims.members
        writer.close()


async def test_members_meet_over_tls_and_refuse_cleartext(nodes: list[_Node], tmp_path: Path) -> None:
    places = LocalGroup(tmp_path, 3).places
    files = Files(tmp_path / "tls")
    server, client = files.server("127.0.0.1"), files.client()
    first, second, plain = await _started(
        nodes, _Node("n0", places, b"s", server=server, client=client),
        _Node("n2", places, b"s", server=server, client=client), _Node("n1", places, b"s"),
    )  # fmt: skip
    [begun] = await first.events(1)
    assert begun.link.claims.member_id == "n2"
    begun.link.send(Vote(7))
    assert [one.message for one in await second.events(2)] == [None, Vote(7)]
    await asyncio.sleep(0.3)
    assert not plain.inbox.take()


async def test_a_certificate_of_another_authority_is_refused(nodes: list[_Node], tmp_path: Path) -> None:
    places = LocalGroup(tmp_path, 2).places
    server = Files(tmp_path / "one").server("127.0.0.1")
    client = Files(tmp_path / "two").client()
    first, second = await _started(
        nodes, _Node("n0", places, b"s", client=client), _Node("n1", places, b"s", server=server)
    )
    await asyncio.sleep(0.5)
    assert not first.inbox.take() and not second.inbox.take()


async def test_an_open_group_says_once_that_nothing_is_proved(
    nodes: list[_Node], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = LocalGroup(tmp_path, 2).places
    first, _ = await _started(nodes, _Node("n0", places, b""), _Node("n1", places, b""))
    assert await first.events(1)
    assert sum("event=raft_open" in one for one in caplog.messages) == 2  # once per member
