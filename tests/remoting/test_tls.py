"""TLS of a server and its clients on real sockets: modes, what is refused, limits, certificates that change."""

import asyncio
import datetime
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from sprocket.common import limits
from sprocket.common.errors import ConfigError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import ConnectFailed, RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.framing import JSON, frame_prefix
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from sprocket.remoting.tls import watch as tls_watch
from sprocket.remoting.tls.certificates import make_authority
from sprocket.remoting.tls.material import server_context
from sprocket.remoting.tls.settings import DISABLED, ENFORCING, PERMISSIVE, TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from tests.remoting.tls_files import NOW, Files
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy:pytest.PytestDeprecationWarning")
TEST_MODE = TlsSettings(config_file=None)
INSECURE = TlsSettings(enable=True, config_file=None)


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Servers run on the one; the other tells what is only so by its chance."""
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


class Door:
    """A server that answers with the name in its client's certificate and what it was sent."""

    def __init__(self, settings: TlsSettings | None) -> None:
        routes = [
            Route(RequestCode.HEART_BEAT, NoHeader, self.answer, Resource.NONE, Action.NONE),
            Route(RequestCode.QUERY_MESSAGE, NoHeader, self.much, Resource.NONE, Action.NONE),
        ]
        self.tls = None if settings is None else ServerTls(settings)
        self.server = RemotingServer(RouteTable(routes), ConnectionSettings("127.0.0.1"), tls=self.tls)
        self.names: list[str | None] = []

    def answer(self, request: Request[NoHeader]) -> Response:
        channel = request.channel
        assert isinstance(channel, RemotingChannel)
        self.names.append(channel.certificate_name)
        return Response(body=request.body)

    def much(self, request: Request[NoHeader]) -> Response:
        return Response(body=memoryview(bytes(range(256)) * int(request.body)))

    @property
    def refused(self) -> dict[str, int]:
        return self.server.counters.protocol_errors


@asynccontextmanager
async def opened(settings: TlsSettings | None) -> AsyncIterator[Door]:
    door = Door(settings)
    await door.server.start()
    try:
        yield door
    finally:
        await door.server.stop()


async def ask(
    door: Door, client: TlsSettings | None, body: bytes = b"hello", *, host: str = "127.0.0.1", code: int = 34
) -> bytes:
    """What the server answers.  Raises ConnectFailed, ConnectionLost."""
    remoting = RemotingClient(tls=None if client is None else ClientTls(client))
    try:
        return bytes((await remoting.invoke(f"{host}:{door.server.port}", code, body=body)).body)
    finally:
        await remoting.close()


# Modes


@pytest.mark.parametrize("mode", [PERMISSIVE, ENFORCING])
async def test_tls_is_served(files: Files, mode: str) -> None:
    async with opened(files.server(mode=mode)) as door:
        assert await ask(door, files.client()) == b"hello"


async def test_permissive_serves_plain_and_tls_on_one_port() -> None:
    async with opened(TEST_MODE) as door:
        assert [await ask(door, None), await ask(door, INSECURE)] == [b"hello", b"hello"]


async def test_plain_is_refused_under_enforcing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(files.server()) as door:
        with pytest.raises(ConnectionLost):
            await ask(door, None)
        assert door.refused == {"plain_refused": 1}
        assert door.server.counters.opened == 0  # nobody has parsed anything
    assert "event=connection_refused kind=plain peer=127.0.0.1" in caplog.text


@pytest.mark.parametrize("settings", [None, TlsSettings(server_mode=DISABLED, config_file=None)])
async def test_tls_is_refused_where_it_is_disabled(
    settings: TlsSettings | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(settings) as door:
        with pytest.raises(ConnectFailed):
            await ask(door, INSECURE)
        assert door.refused == {"tls_refused": 1}
        assert await ask(door, None) == b"hello"
    assert "event=connection_refused kind=tls peer=127.0.0.1" in caplog.text


# What the promise about TLS says is refused


def _handshake(door: Door, context: ssl.SSLContext) -> str:
    """The version that was agreed; blocking.  Raises ssl.SSLError, OSError."""
    plain = socket.create_connection(("127.0.0.1", door.server.port), 10)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as tls:
        # With TLS 1.3 a server's refusal comes after the client's end of the handshake.
        tls.sendall(struct.pack(">i", -1))
        tls.recv(1)
        return tls.version() or ""


def _client_of(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # The system's own limits are taken away: it is the server that has to refuse.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_versions_are_refused(files: Files, version: ssl.TLSVersion) -> None:
    async with opened(files.server()) as door:
        with pytest.raises(OSError, match=r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL"):
            await asyncio.to_thread(_handshake, door, _client_of(version))
        await until(lambda: door.refused == {"tls_handshake": 1})


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_new_versions_are_served(files: Files, version: ssl.TLSVersion) -> None:
    async with opened(files.server()) as door:
        agreed = await asyncio.to_thread(_handshake, door, _client_of(version))
        assert agreed == version.name.replace("_", ".")


async def test_weak_suites_are_refused(files: Files) -> None:
    context = _client_of(ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("AES128-SHA:AES256-SHA256:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    async with opened(files.server()) as door:
        with pytest.raises(OSError, match="HANDSHAKE_FAILURE"):
            await asyncio.to_thread(_handshake, door, context)


async def test_a_stranger_of_a_server_is_refused(files: Files, tmp_path: Path) -> None:
    stranger = Files(tmp_path, "Another CA")
    async with opened(stranger.server()) as door:
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await ask(door, files.client())


async def test_an_expired_certificate_of_a_server_is_refused(files: Files) -> None:
    old = files.issue("expired", "127.0.0.1", now=NOW - datetime.timedelta(days=20), days=10)
    async with opened(replace(files.server(), server_cert_path=old[0], server_key_path=old[1])) as door:
        with pytest.raises(ConnectFailed, match="certificate has expired"):
            await ask(door, files.client())


async def test_a_certificate_of_another_host_is_refused(files: Files) -> None:
    async with opened(files.server("broker.example.org", "10.1.1.1")) as door:
        with pytest.raises(ConnectFailed, match="IP address mismatch"):
            await ask(door, files.client())
        with pytest.raises(ConnectFailed, match="Hostname mismatch"):
            await ask(door, files.client(), host="localhost")
        assert await ask(door, files.client(check_host=False)) == b"hello"


async def test_a_clients_certificate_is_no_servers(files: Files) -> None:
    certificate, key = files.issue("only-a-client")
    async with opened(replace(files.server(), server_cert_path=certificate, server_key_path=key)) as door:
        with pytest.raises(ConnectFailed, match=r"unsuitable certificate purpose|certificate verify failed"):
            await ask(door, files.client(check_host=False))


async def _is_refused(door: Door, client: TlsSettings) -> None:
    """With TLS 1.3 a client learns of it after its own end of the handshake."""
    with pytest.raises((ConnectFailed, ConnectionLost)):
        await ask(door, client)
    await until(lambda: door.refused.get("tls_handshake", 0) > 0)
    assert door.names == []


async def test_without_a_certificate_of_the_client(files: Files) -> None:
    async with opened(files.server(clients="require")) as door:
        await _is_refused(door, files.client())


@pytest.mark.parametrize("clients", ["require", "optional"])
async def test_a_clients_certificate_of_a_stranger_is_refused(files: Files, tmp_path: Path, clients: str) -> None:
    certificate, key = Files(tmp_path, "Test CA").issue("admin")
    async with opened(files.server(clients=clients)) as door:
        await _is_refused(door, TlsSettings.for_client(files.ca, certificate, key))


async def test_an_expired_certificate_of_a_client_is_refused(files: Files) -> None:
    certificate, key = files.issue("old-client", now=NOW - datetime.timedelta(days=20), days=10)
    async with opened(files.server(clients="require")) as door:
        await _is_refused(door, TlsSettings.for_client(files.ca, certificate, key))


# Who the client is


async def test_the_name_of_a_verified_certificate_is_known(files: Files) -> None:
    async with opened(files.server(clients="optional")) as door:
        await ask(door, files.client("billing"))
        await ask(door, files.client())
    assert door.names == ["billing", None]


async def test_a_certificate_that_nobody_checks_names_nobody(files: Files) -> None:
    async with opened(files.server()) as door, opened(TEST_MODE) as open_door:
        await ask(door, files.client("billing"))
        await ask(open_door, replace(files.client("billing"), client_auth_server=False))
    assert door.names + open_door.names == [None, None]


# Bytes of any size, in pieces of any size


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 300_000, 3_000_000])
async def test_bodies_of_any_size_come_back(files: Files, size: int) -> None:
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    async with opened(files.server()) as door:
        assert await ask(door, files.client(), body) == body


async def test_a_stream_in_single_bytes_is_understood(files: Files) -> None:
    def slowly(port: int) -> bytes:
        context = _client_of(ssl.TLSVersion.TLSv1_3)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        header = b'{"code":34,"opaque":7,"flag":0}'
        frame = frame_prefix(JSON, len(header), 0) + header
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            steps: list[Callable[[], object]] = [tls.do_handshake, lambda: tls.write(frame), lambda: tls.read(1 << 16)]
            for step in steps:
                while True:
                    try:
                        result = step()
                        break
                    except ssl.SSLWantReadError:
                        pass
                    finally:
                        for one in outgoing.read():
                            plain.sendall(bytes([one]))
                    incoming.write(plain.recv(1))
            assert isinstance(result, bytes)
            return result

    async with opened(files.server()) as door:
        answer = await asyncio.to_thread(slowly, door.server.port)
        assert b'"opaque":7' in answer
        assert door.names == [None]


async def test_a_reader_that_is_slow_holds_its_own_connection_alone(files: Files) -> None:
    async with opened(files.server()) as door:
        remoting = RemotingClient(tls=ClientTls(files.client()))
        channel = await remoting.channel(f"127.0.0.1:{door.server.port}")
        transport = channel._transport
        assert transport is not None
        transport.pause_reading()
        answers = [channel.request(12, body=b"40000", timeout_s=60) for _ in range(3)]
        await until(lambda: any(one.stalled_at for one in door.server.channels.values()))
        assert await ask(door, files.client()) == b"hello"
        transport.resume_reading()
        bodies = [bytes((await answer).body) for answer in answers]
        assert bodies == [bytes(range(256)) * 40000] * 3
        await remoting.close()


async def test_both_ends_close_in_order(files: Files) -> None:
    async with opened(files.server()) as door:
        gone: list[int] = []
        door.server.on_close.append(lambda channel: gone.append(channel.id))
        assert await ask(door, files.client()) == b"hello"
        await until(lambda: len(gone) == 1)
        assert door.refused == {} and len(door.server.channels) == 0


# Limits


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _client_of(ssl.TLSVersion.TLSv1_3).wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def test_a_handshake_has_to_end_in_time(files: Files) -> None:
    loop = asyncio.get_running_loop()
    async with opened(files.server()) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.server.port)
        writer.write(_hello()[:100])
        await until(lambda: door.server.status()["connections"] == 1)
        await asyncio.sleep(0.05)
        door.server.sweep(loop.time() + limits.TLS_HANDSHAKE_S / 4)
        assert door.server.status()["connections"] == 1
        door.server.sweep(loop.time() + limits.TLS_HANDSHAKE_S + 1)
        assert await reader.read() == b""
        assert door.refused == {"tls_handshake": 1} and door.server.status()["connections"] == 0
        writer.close()


async def test_a_handshake_has_a_bounded_size(files: Files) -> None:
    # Handshake records that never add up to a message.
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x01\xff\xff" + bytes(16 * 1024 - 4)
    async with opened(files.server()) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.server.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while True:
                writer.write(record)
                await writer.drain()
                if reader.at_eof():
                    raise ConnectionResetError
                await asyncio.sleep(0)
        await until(lambda: door.refused == {"tls_handshake": 1})
        writer.close()


async def test_a_silent_connection_is_idle(files: Files) -> None:
    loop = asyncio.get_running_loop()
    async with opened(files.server()) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.server.port)
        await until(lambda: door.server.status()["connections"] == 1)
        door.server.sweep(loop.time() + 100)
        assert door.server.status()["connections"] == 1
        door.server.sweep(loop.time() + 200)
        assert await reader.read() == b""
        assert door.server.counters.idle_closed == 1 and door.refused == {}
        writer.close()


async def test_garbage_inside_a_connection_ends_it(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    def spoil(port: int) -> None:
        plain = socket.create_connection(("127.0.0.1", port), 10)
        with plain, _client_of(ssl.TLSVersion.TLSv1_3).wrap_socket(plain) as tls, suppress(ConnectionResetError):
            raw = socket.socket(fileno=socket.dup(tls.fileno()))
            with raw:
                raw.settimeout(10)
                raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
                while raw.recv(1 << 16):
                    pass

    async with opened(files.server()) as door:
        with caplog.at_level(logging.WARNING):
            await asyncio.to_thread(spoil, door.server.port)
        await until(lambda: len(door.server.channels) == 0)
    assert "event=tls_failed" in caplog.text


# Certificates that change


async def test_a_new_pair_is_shown_to_new_connections_and_the_old_ones_go_on(files: Files, tmp_path: Path) -> None:
    ours, theirs = Files(tmp_path / "ours"), Files(tmp_path / "theirs")
    settings = ours.server()
    async with opened(settings) as door:
        remoting = RemotingClient(tls=ClientTls(ours.client()))
        address = f"127.0.0.1:{door.server.port}"
        await remoting.invoke(address, 34)
        certificate, key = theirs.issue("server", "127.0.0.1")
        assert settings.server_cert_path is not None and settings.server_key_path is not None
        settings.server_cert_path.write_bytes(certificate.read_bytes())
        door.server.sweep(0)  # half of it is there: it does not match
        assert await ask(door, ours.client()) == b"hello"
        settings.server_key_path.write_bytes(key.read_bytes())
        door.server.sweep(0)
        assert await ask(door, theirs.client()) == b"hello"
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await ask(door, ours.client())
        await remoting.invoke(address, 34)  # over the connection from before
        assert remoting.counters.opened == 1
        await remoting.close()


async def test_a_broken_pair_is_logged_once_and_the_last_one_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    settings = files.server()
    async with opened(settings) as door:
        assert settings.server_key_path is not None
        settings.server_key_path.write_bytes(b"nothing")
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                door.server.sweep(0)
        assert await ask(door, files.client()) == b"hello"
        settings.server_key_path.unlink()
        door.server.sweep(0)
        assert await ask(door, files.client()) == b"hello"
    assert caplog.text.count("holds no private key in PEM") == 1


async def test_a_half_that_comes_while_the_other_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, certificate, key = Files(tmp_path), tmp_path / "server.pem", tmp_path / "server.key"
    new: list[bytes] = []

    def slowly(settings: TlsSettings) -> ssl.SSLContext:
        try:
            return server_context(settings)
        finally:
            if new:
                key.write_bytes(new.pop())

    monkeypatch.setattr(tls_watch, "server_context", slowly)
    async with opened(files.server()) as door:
        old = certificate.read_bytes(), key.read_bytes()
        files.issue("server", "10.1.1.1")
        new.append(key.read_bytes())
        key.write_bytes(old[1])
        door.server.sweep(0)  # the new certificate with the old key; the new key comes now
        assert await ask(door, files.client()) == b"hello"
        door.server.sweep(0)
        with pytest.raises(ConnectFailed, match="IP address mismatch"):
            await ask(door, files.client())


async def test_a_client_sees_a_new_authority(files: Files, tmp_path: Path) -> None:
    ours, theirs = Files(tmp_path / "ours"), Files(tmp_path / "theirs")
    async with opened(theirs.server()) as door:
        remoting = RemotingClient(tls=ClientTls(ours.client()))
        address = f"127.0.0.1:{door.server.port}"
        with pytest.raises(ConnectFailed):
            await remoting.invoke(address, 34)
        ours.ca.write_bytes(theirs.ca.read_bytes())
        assert (await remoting.invoke(address, 34)).code == 0
        await remoting.close()


# What is wrong at the start


def _start(settings: TlsSettings) -> None:
    ServerTls(settings).start()


def test_what_is_wrong_with_which_file(files: Files, tmp_path: Path) -> None:
    good = files.server()
    other = make_authority("other", NOW, 3)
    assert good.server_key_path is not None and good.server_cert_path is not None
    (tmp_path / "none.pem").write_bytes(b"no certificate")
    (tmp_path / "other.key").write_bytes(other.key_pem())
    wrong = [
        (
            replace(good, server_cert_path=tmp_path / "no.pem"),
            r"tls.server.certPath = .*no.pem: cannot be read: No such",
        ),
        (replace(good, server_key_path=tmp_path / "no.key"), r"tls.server.keyPath = .*no.key: cannot be read: No such"),
        (replace(good, server_cert_path=tmp_path / "none.pem"), r"certPath = .*none.pem: it holds no certificate"),
        (replace(good, server_key_path=tmp_path / "none.pem"), r"keyPath = .*none.pem: it holds no private key"),
        (replace(good, server_key_path=tmp_path / "other.key"), r"keyPath = .*: it is not the key of the certificate"),
        (replace(good, server_need_client_auth="require"), r"tls.server.need.client.auth = require: set tls.server.tr"),
        (replace(good, server_key_path=None), r"tls.server.certPath is set and tls.server.keyPath is not"),
        (replace(TEST_MODE, test_mode_enable=False), r"tls.server.certPath is not set"),
        (replace(good, config_file=tmp_path / "tls.properties"), r"tls.config.file = .*: cannot be read: No such"),
        (
            replace(good, server_need_client_auth="optional", server_trust_cert_path=tmp_path / "none.pem"),
            r"tls.server.trustCertPath = .*none.pem: it holds no certificate",
        ),
    ]
    for settings, text in wrong:
        with pytest.raises(ConfigError, match=text):
            _start(settings)
    _start(good)


@pytest.mark.parametrize(("password", "text"), [("right", ""), ("", "no keyPassword is set"), ("bad", "is wrong")])
def test_encrypted_keys(files: Files, tmp_path: Path, password: str, text: str) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    pair = make_authority("encrypted", NOW, 3)
    certificate, key = Files(tmp_path).write("encrypted", pair)
    encryption = BestAvailableEncryption(b"right")
    key.write_bytes(pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    settings = replace(files.server(), server_cert_path=certificate, server_key_path=key, server_key_password=password)
    if not text:
        _start(settings)
        return
    with pytest.raises(ConfigError, match=text):
        _start(settings)


def test_no_password_is_shown() -> None:
    settings = TlsSettings(server_key_password="secret-of-server", client_key_password="secret-of-client")
    assert "secret-of" not in repr(settings)
