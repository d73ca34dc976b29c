"""Signatures and TLS of a grpc:// connection, against a proxy that requires both."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import sprocket
from acl.auth.files import AuthFiles
from acl.auth.model import User, UserType
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from sprocket import (
    Credentials,
    Message,
    PermissionDenied,
    SendFailed,
    TlsSettings,
    TlsUnusable,
    TokenCredentials,
)
from sprocket.common.clock import SystemClock
from sprocket.remoting.tls.certificates import issue, make_authority
from sprocket.testing import Broker
from tests.acl.tokens.makers import key, key_files, token
from tests.proxy.rig import Rig, running


@pytest.fixture
async def guarded(broker: Broker, tmp_path: Path) -> AsyncIterator[Rig]:
    """A proxy with the user root, whose certificate is of the authority in ca.pem."""
    files = AuthFiles(tmp_path)
    files.load()
    tables = AuthTables(files.save)
    tables.create_user(User("root", "secret", UserType.SUPER))
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("test", now, 1)
    pair = issue(authority, "proxy", ["localhost", "127.0.0.1"], now, 1)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem())
    (tmp_path / "proxy.pem").write_bytes(pair.certificate_pem())
    (tmp_path / "proxy.key").write_bytes(pair.key_pem())
    keys = key_files(tmp_path / "keys", key("ES256"))
    auth = AuthSettings(authentication_enabled=True, authorization_enabled=True, token_super_user_enabled=True, **keys)
    async with running(
        broker, auth=auth, auth_config_path=str(tmp_path), tls_server_mode="enforcing", tls_test_mode_enable=False,
        tls_cert_path=str(tmp_path / "proxy.pem"), tls_key_path=str(tmp_path / "proxy.key"),
    ) as rig:  # fmt: skip
        yield rig


async def test_signed_client_over_tls_sends_and_receives(guarded: Rig, topic: str, tmp_path: Path) -> None:
    tls = TlsSettings.for_client(trust=tmp_path / "ca.pem")
    address = f"grpc://127.0.0.1:{guarded.port}"
    async with sprocket.connect(address, credentials=Credentials("root", "secret"), tls=tls) as mq:
        consumer = mq.simple_consumer("group-tls", topic)
        await consumer.receive(1, wait_s=0.1)
        await mq.producer().send(Message(topic, b"signed"))
        (received,) = await consumer.receive(1, wait_s=5)
        assert received.body == b"signed"
        await received.ack()


@pytest.mark.parametrize("is_access_key", [False, True])
async def test_a_token_is_presented_with_each_call_and_can_be_renewed(
    guarded: Rig, topic: str, tmp_path: Path, is_access_key: bool
) -> None:
    tls, now_s = TlsSettings.for_client(trust=tmp_path / "ca.pem"), SystemClock().wall_ms() // 1000
    good, expired = (token(key("ES256"), now_s, user="root", life_s=life_s) for life_s in (600, -600))
    present = [good]
    # RocketMQ's clients can send a token only where they name their account.
    credentials = Credentials(good, "any") if is_access_key else TokenCredentials(lambda: present[0])
    assert good not in repr(TokenCredentials(good))
    async with sprocket.connect(f"grpc://127.0.0.1:{guarded.port}", credentials=credentials, tls=tls) as mq:
        await mq.producer().send(Message(topic, b"first"))
        if is_access_key:
            return
        present[0] = expired
        with pytest.raises(PermissionDenied, match="has expired; present a new one"):
            await mq.producer().send(Message(topic, b"x"))
        present[0] = good
        await mq.producer().send(Message(topic, b"second"))


async def test_a_token_is_fetched_by_an_async_function(guarded: Rig, topic: str, tmp_path: Path) -> None:
    tls, fetched = TlsSettings.for_client(trust=tmp_path / "ca.pem"), list[str]()

    async def fetch() -> str:
        fetched.append(token(key("ES256"), SystemClock().wall_ms() // 1000, user="root"))
        return fetched[-1]

    async with sprocket.connect(f"grpc://127.0.0.1:{guarded.port}", credentials=fetch, tls=tls) as mq:
        await mq.producer().send(Message(topic, b"first"))
        await mq.producer().send(Message(topic, b"second"))
    assert len(fetched) == 1


async def test_wrong_secret_and_plain_text_are_refused(guarded: Rig, topic: str, tmp_path: Path) -> None:
    tls = TlsSettings.for_client(trust=tmp_path / "ca.pem")
    address = f"grpc://127.0.0.1:{guarded.port}"
    async with sprocket.connect(address, credentials=Credentials("root", "wrong"), tls=tls) as mq:
        with pytest.raises(PermissionDenied, match="UNAUTHORIZED"):
            await mq.producer().send(Message(topic, b"x"))
    async with sprocket.connect(address, credentials=Credentials("root", "secret")) as mq:
        with pytest.raises(SendFailed):
            await mq.producer().send(Message(topic, b"x"), timeout_s=1)


async def test_tls_without_verification_says_what_to_pass() -> None:
    with pytest.raises(TlsUnusable, match="for_client"):
        async with sprocket.connect("grpc://127.0.0.1:1", tls=TlsSettings(enable=True, config_file=None)):
            pass
