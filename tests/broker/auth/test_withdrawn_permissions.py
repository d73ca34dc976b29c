"""What an account may do ends with the next request, however that arrives: for both generations, with and without TLS.

The requests before it are admitted by passes; with the compiled engine, no check in Python sees sends and pulls.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from acl.auth.infos import acl_of
from acl.auth.model import User, UserStatus
from acl.gate import Doorway
from acl.tokens.revocations import Revocation
from broker.server import Broker
from sprocket.common.clock import SystemClock
from sprocket.engine.choice import ENGINE
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials, TokenCredentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.message.properties import encode
from sprocket.remoting.routes import open_frame
from sprocket.remoting.tls.watch import ClientTls
from tests.acl.tokens.makers import key, key_files, token
from tests.broker.pop.rig import messages_of, pop_header
from tests.broker.rig import GROUP, TOPIC, broker_config, store_config
from tests.remoting.tls_files import Files
from tests.send_headers import send_header

ALICE: Final = Credentials("alice12", "secret-of-alice12")
OTHER_KEY: Final = Credentials("alice12", "another-secret-of-alice12")
GUESSED: Final = Credentials("alice12", "guessed")
SEND, PULL, POP, ACK = (
    RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE,
)  # fmt: skip
PULL_HEADER: Final = PullMessageRequestHeader(
    consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
    suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
)  # fmt: skip
SEND_HEADER: Final = send_header(TOPIC, properties=encode({"UNIQ_KEY": "0A000001000000000000000000000001"}))


@dataclass
class Peer:
    """A connection that chooses which bytes leave together."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    ack: AckMessageRequestHeader | None = None

    def request(self, code: RequestCode, opaque: int, account: Credentials | None) -> bytes:
        header: Header | None = {SEND: SEND_HEADER, PULL: PULL_HEADER, POP: pop_header(), ACK: self.ack}[code]
        assert header is not None
        body = b"body" if code is SEND else b""
        fields = to_ext_fields(header)
        signed = fields if account is None else account.signed(fields, body)
        return encode_request(code, opaque, signed, len(body)) + body

    async def ask(
        self, codes: Sequence[RequestCode], account: Credentials | None, *cuts: int, forged: Collection[int] = ()
    ) -> list[ReceivedResponse]:
        """Send requests in one write, or in several that end at `cuts`; return the responses by opaque.

        Those in `forged` are signed with a guessed key.
        """
        content = b"".join(
            self.request(code, opaque, GUESSED if opaque in forged else account) for opaque, code in enumerate(codes)
        )
        for start, end in zip((0, *cuts), (*cuts, len(content)), strict=True):
            self.writer.write(content[start:end])
            await self.writer.drain()
            await asyncio.sleep(0.02 if cuts else 0)  # let the broker read the part alone
        found: dict[int, ReceivedResponse] = {}
        async with asyncio.timeout(60):
            while len(found) < len(codes):
                data = await self.reader.read(1 << 16)
                if not data:
                    raise ConnectionResetError("the broker has closed the connection")
                for frame in self.decoder.feed(data):
                    answer = open_frame(frame)
                    assert isinstance(answer, ReceivedResponse)
                    found[answer.opaque] = answer
        return [found[opaque] for opaque in range(len(codes))]

    async def prepare(self, account: Credentials | None = ALICE) -> None:
        """Store a message, and pop it, so that there is something to pull and to acknowledge."""
        (answer,) = await self.ask((SEND,), account)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (answer,) = await self.ask((POP,), account)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        message = messages_of(answer)[0]
        self.ack = AckMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=message.queue_id, extra_info=message.handle.encode(),
            offset=message.queue_offset,
        )  # fmt: skip


# Which requests arrive, and where the bytes of the first ones are cut into reads.
READS: Final[dict[str, tuple[tuple[RequestCode, ...], tuple[int, ...]]]] = {
    **{f"one {code.name}": ((code,), ()) for code in (SEND, PULL, POP, ACK)},
    **{f"many {code.name}": ((code,) * 20, ()) for code in (SEND, PULL, POP, ACK)},
    **{f"{code.name} in two parts": ((code,), (50,)) for code in (SEND, PULL, POP, ACK)},
    "mixed": ((SEND, SEND, PULL, ACK, SEND, POP, PULL, PULL, ACK, SEND), ()),
    "mixed, in three parts": ((PULL, SEND, ACK, POP, SEND), (50, 700)),
}


def plain_accounts(secret_key: str = ALICE.secret_key, topic: str = "PUB|SUB", name: str = ALICE.access_key) -> str:
    permissions = f"topicPerms: ['{TOPIC}={topic}'], groupPerms: ['{GROUP}=SUB']"
    return f"accounts:\n  - {{accessKey: {name}, secretKey: {secret_key}, {permissions}}}\n"


@dataclass
class Guarded:
    """A broker with access control of one generation."""

    broker: Broker
    accounts: Path
    tls: ClientTls | None

    async def connect(self) -> Peer:
        context = None if self.tls is None else self.tls.context()
        return Peer(*await asyncio.open_connection("127.0.0.1", self.broker.port, ssl=context))

    def write(self, text: str) -> None:
        """Replace the accounts of ACL 1.0, as the periodic check of the files does."""
        self.accounts.write_text(text)
        self.broker.access.check()

    def decide(self, decision: str) -> None:
        resources = (f"Topic:{TOPIC}", f"Group:{GROUP}")
        entries = [PolicyEntryInfo(resource, ["Pub", "Sub"], None, decision) for resource in resources]
        self.broker.users.tables.update_acl(acl_of(AclInfo(f"User:{ALICE.access_key}", [PolicyInfo(None, entries)])))


@asynccontextmanager
async def guarded(root: Path, generation: int, *, is_tls: bool = False, **more: Any) -> AsyncIterator[Guarded]:
    files = Files(root / "keys") if is_tls else None
    accounts = root / "home" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(plain_accounts())
    changes: dict[str, Any] = (
        {"acl_enable": True, "rocketmq_home": str(root / "home")}
        if generation == 1
        else {"authentication_enabled": True, "authorization_enabled": True}
    )
    config = broker_config(auth_failures_per_second=0, **changes, **more)
    broker = Broker(config, store_config(root), tls=None if files is None else files.server(clients="optional"))
    await broker.start()
    try:
        assert broker.topics.update([TopicConfig(TOPIC, 1, 1)])
        one = Guarded(broker, accounts, None if files is None else ClientTls(files.client(ALICE.access_key)))
        if generation == 2:
            broker.users.tables.create_user(User(ALICE.access_key, ALICE.secret_key))
            one.decide("Allow")
        yield one
    finally:
        await broker.stop()


@contextmanager
def checks_counted() -> Iterator[list[int]]:
    """Count the frames that the gate sees in Python."""
    admit, seen = Doorway.admit, [0]

    def counting(self: Doorway, frame: Any, channel: Any) -> Any:
        seen[0] += 1
        return admit(self, frame, channel)

    with patch.object(Doorway, "admit", counting):
        yield seen


CHANGES: Final[dict[str, tuple[int, Callable[[Guarded], None]]]] = {
    "user deleted": (2, lambda one: one.broker.users.tables.delete_user(ALICE.access_key)),
    "user disabled": (
        2, lambda one: one.broker.users.tables.update_user(ALICE.access_key, None, None, UserStatus.DISABLE),
    ),
    "password changed": (
        2, lambda one: one.broker.users.tables.update_user(ALICE.access_key, OTHER_KEY.secret_key, None, None),
    ),
    "policy changed": (2, lambda one: one.decide("Deny")),
    "account removed": (1, lambda one: one.write(plain_accounts(name="somebody"))),
    "key changed": (1, lambda one: one.write(plain_accounts(OTHER_KEY.secret_key))),
    "permission changed": (1, lambda one: one.write(plain_accounts(topic="DENY"))),
}  # fmt: skip


def refused_with(generation: int) -> int:
    return ResponseCode.SYSTEM_ERROR if generation == 1 else ResponseCode.NO_PERMISSION


async def serves(peer: Peer, name: str, generation: int, account: Credentials | None = ALICE) -> bool:
    """Whether a broker serves all requests of a read; it must not serve some of them."""
    codes, cuts = READS[name]
    answers = await peer.ask(codes, account, *cuts)
    (is_refused,) = {answer.code == refused_with(generation) for answer in answers}
    return not is_refused


# TLS cuts reads in its own way, whatever changes.
@pytest.mark.parametrize(
    ("change", "is_tls"), [*((change, False) for change in CHANGES), ("policy changed", True), ("key changed", True)]
)
async def test_a_change_counts_from_the_next_request_on(tmp_path: Path, change: str, is_tls: bool) -> None:
    generation, happens = CHANGES[change]
    with checks_counted() as seen:
        async with guarded(tmp_path, generation, is_tls=is_tls) as one:
            # One connection for each kind of read: all have passes when the change comes.
            peers = {name: await one.connect() for name in READS}
            for name, peer in peers.items():
                await peer.prepare()
                assert await serves(peer, name, generation), name
                before = seen[0]
                assert await serves(peer, name, generation), name
                if ENGINE.name == "native" and set(READS[name][0]) in ({SEND}, {PULL}):
                    assert seen[0] == before, name
            end = one.broker.store.max_offset(TOPIC, 0)
            happens(one)
            for name, peer in peers.items():
                for _ in range(2):
                    assert not await serves(peer, name, generation), name
                peer.writer.close()
            assert one.broker.store.max_offset(TOPIC, 0) == end


async def test_the_user_of_a_certificate_is_refused_from_the_next_request_on(tmp_path: Path) -> None:
    async with guarded(tmp_path, 2, is_tls=True, certificate_as_user=True) as one:
        peers = {name: await one.connect() for name in READS}
        for name, peer in peers.items():
            await peer.prepare(None)
            # Unsigned requests are the certificate's; passes of the same user let none of them through.
            for account in (None, ALICE, None):
                assert await serves(peer, name, 2, account), name
        one.decide("Deny")
        for name, peer in peers.items():
            for account in (None, ALICE, None):
                assert not await serves(peer, name, 2, account), name
            peer.writer.close()


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_connection_with_passes_serves_nothing_that_is_not_proved(tmp_path: Path, generation: int) -> None:
    async with guarded(tmp_path, generation) as one:
        for name, (codes, cuts) in READS.items():
            peer = await one.connect()
            await peer.prepare()
            for _ in range(2):
                assert await serves(peer, name, generation), name
            end = one.broker.store.max_offset(TOPIC, 0)
            for account in (None, GUESSED, Credentials("nobody", ALICE.secret_key)):
                assert not await serves(peer, name, generation, account), name
            assert one.broker.store.max_offset(TOPIC, 0) == end
            # Of a read, those that are not proved are refused, and the others are served.
            forged = set(range(0, len(codes), 3))
            answers = await peer.ask(codes, ALICE, *cuts, forged=forged)
            found = {opaque for opaque, one in enumerate(answers) if one.code == refused_with(generation)}
            assert found == forged, name
            sends = sum(code is SEND for opaque, code in enumerate(codes) if opaque not in forged)
            assert one.broker.store.max_offset(TOPIC, 0) == end + sends
            peer.writer.close()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_revoked_token_is_refused_from_the_next_request_on(tmp_path: Path, is_tls: bool) -> None:
    now_s = SystemClock().wall_ms() // 1000
    files = key_files(tmp_path / "token-keys", key("ES256"))
    bearer = TokenCredentials(token(key("ES256"), now_s, user=ALICE.access_key))
    with checks_counted() as seen:
        async with guarded(tmp_path, 2, is_tls=is_tls, **files) as one:
            peers = {name: await one.connect() for name in READS}
            for name, peer in peers.items():
                await peer.prepare(bearer)
                assert await serves(peer, name, 2, bearer), name
                before = seen[0]
                assert await serves(peer, name, 2, bearer), name
                if ENGINE.name == "native" and not is_tls and set(READS[name][0]) in ({SEND}, {PULL}):
                    assert seen[0] == before, name
            end = one.broker.store.max_offset(TOPIC, 0)
            one.broker.users.tables.revoke(Revocation(token_id="t1"), now_s)
            for name, peer in peers.items():
                # Within a second the broker closes the connection itself.
                with suppress(ConnectionError):
                    for _ in range(2):
                        assert not await serves(peer, name, 2, bearer), name
                peer.writer.close()
            assert one.broker.store.max_offset(TOPIC, 0) == end
