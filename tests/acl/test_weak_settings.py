"""What a server logs about its settings when it starts."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acl.auth.settings import AuthSettings
from acl.weak_settings import Exposure, weak_settings
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.tls.settings import DISABLED, ENFORCING, TlsSettings
from tests.broker.rig import running_broker

OPEN = Exposure("0.0.0.0", AuthSettings(), TlsSettings(), has_replica_secret=False)
SAFE = Exposure(
    "10.0.0.5",
    AuthSettings(authentication_enabled=True, authorization_enabled=True),
    TlsSettings(server_mode=ENFORCING),
    has_replica_secret=True,
    secrets=[("app", "a-long-secret-of-app")],
)


def keys(of: Exposure) -> list[str]:
    return [key for key, _ in weak_settings(of)]


def test_defaults_leave_everything_open() -> None:
    assert keys(OPEN) == ["bindAddress", "authenticationEnabled", "tls.server.mode", "haSecretFile"]


def test_nothing_is_said_of_what_is_safe_or_out_of_reach() -> None:
    assert keys(SAFE) == []
    for local in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        assert keys(replace(OPEN, bind_address=local)) == []


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"bind_address": "::"}, "bindAddress"),
        ({"auth": AuthSettings()}, "authenticationEnabled"),
        ({"auth": AuthSettings(authentication_enabled=True)}, "authorizationEnabled"),
        ({"tls": TlsSettings()}, "tls.server.mode"),
        ({"tls": TlsSettings(server_mode=DISABLED)}, "tls.server.mode"),
        ({"has_replica_secret": False}, "haSecretFile"),
        ({"signs_for_strangers": True}, "haAllowPlainPeers"),
        (
            {"auth": AuthSettings(authorization_enabled=True, auth_secrets_in_clear=True)},
            "authSecretsInClear",
        ),
        ({"secrets": [("rocketmq2", "12345678")]}, "secretKey"),
        ({"secrets": [("a-name-as-a-key", "A-Name-As-A-Key")]}, "secretKey"),
        ({"secrets": [("app", "short")]}, "secretKey"),
    ],
)
def test_each_weak_setting_by_itself(change: dict[str, object], key: str) -> None:
    assert keys(replace(SAFE, **change)) == [key]  # type: ignore[arg-type] # as the table says


def test_accounts_of_acl_1_are_an_authorization() -> None:
    assert keys(replace(SAFE, auth=AuthSettings(), acl_enable=True)) == []


async def test_servers_say_it_once_and_show_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    user = '{"username":"root","password":"hunter2"}'
    changes: dict[str, Any] = {
        "bind_address": "0.0.0.0",
        "authentication_enabled": True,
        "init_authentication_user": user,
    }
    async with running_broker(tmp_path, **changes):
        assert said(caplog) == ["bindAddress", "authorizationEnabled", "tls.server.mode", "secretKey"]
    caplog.clear()
    server = NameServer(
        NamesrvConfig(
            listen_port=0, kv_config_path=tmp_path / "kv.json", authentication_enabled=True,
            init_authentication_user=user,
        )
    )  # fmt: skip
    await server.start()
    await server.stop()
    assert said(caplog) == ["bindAddress", "authorizationEnabled", "tls.server.mode", "secretKey"]
    assert "hunter2" not in caplog.text


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "acl.weak_settings"]
    assert all(record.levelno == logging.WARNING for record in records)
    return [record.getMessage().split()[1].removeprefix("key=") for record in records]
