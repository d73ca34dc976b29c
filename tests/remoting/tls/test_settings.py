"""Which keys of TLS hold: what is set, what is named, what a file of its own says, what JAVA_OPT says."""

from dataclasses import replace
from pathlib import Path

import pytest

from sprocket.common.config.configuration import read
from sprocket.common.config.properties import parse
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.settings import TlsSettings, system_properties
from sprocket.remoting.tls.watch import ClientTls, ServerTls

_PAIR = TlsSettings(config_file=None, server_cert_path=Path("c"), server_key_path=Path("k"))


def test_defaults_are_those_of_rocketmq() -> None:
    settings = TlsSettings()
    assert (settings.server_mode, settings.server_need_client_auth) == ("permissive", "none")
    assert settings.config_file == Path("/etc/rocketmq/tls.properties")
    assert (settings.is_test, settings.is_client) == (True, False)
    assert (settings.checks_clients, settings.checks_servers) == (False, False)


@pytest.mark.parametrize(("mode", "enable", "is_client"), [
    ("permissive", None, False), ("enforcing", None, True), ("enforcing", False, False), ("disabled", True, True),
])  # fmt: skip
def test_which_requests_to_others_use_tls(mode: str, enable: bool | None, is_client: bool) -> None:
    assert TlsSettings(server_mode=mode, enable=enable).is_client is is_client


def test_what_is_named_is_used_unless_a_key_says_otherwise() -> None:
    assert not _PAIR.is_test
    assert replace(_PAIR, test_mode_enable=True).is_test
    trusting = replace(_PAIR, server_trust_cert_path=Path("ca"), server_need_client_auth="optional")
    assert trusting.checks_clients
    assert not replace(trusting, server_auth_client=False).checks_clients
    assert not replace(trusting, server_need_client_auth="none").checks_clients
    assert not replace(trusting, test_mode_enable=True).checks_clients
    client = TlsSettings(client_trust_cert_path=Path("ca"))
    assert client.checks_servers
    assert not replace(client, client_auth_server=False).checks_servers
    assert not replace(client, test_mode_enable=True).checks_servers
    assert TlsSettings(client_auth_server=True).checks_servers


def test_a_file_of_its_own_wins_over_all_but_what_it_does_not_hold() -> None:
    text = """
        tls.server.keyPath = /keys/own.key
        tls.test.mode.enable = false
        tls.server.mode = disabled
        tls.enable = true
        tls.server.unknown = 1
    """
    settings, notices = _PAIR.with_file(parse(text, "tls.properties"), "tls.properties")
    assert settings.server_key_path == Path("/keys/own.key")
    assert settings.server_cert_path == Path("c")
    assert (settings.server_mode, settings.enable, settings.test_mode_enable) == ("permissive", None, False)
    assert notices == [
        "tls.properties:4: tls.server.mode has no effect here",
        "tls.properties:5: tls.enable has no effect here",
        "tls.properties:6: tls.server.unknown has no effect here",
    ]


def test_a_bad_value_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("\ntls.server.need.client.auth = perhaps\n")
    settings = TlsSettings(enable=True, config_file=file)
    text = r"tls.properties:2: tls.server.need.client.auth = 'perhaps': allowed is none or optional or require"
    with pytest.raises(ConfigError, match=text):
        ServerTls(settings).start()
    with pytest.raises(ConfigError, match=text):
        ClientTls(settings).start()


def test_keys_among_the_words_of_java_opt() -> None:
    environment = {
        "JAVA_OPT": "-Xmx1g -Dtls.enable=true -Dtls.config.file='/a folder/tls.properties' -Duser.home=/x",
        "JAVA_OPT_EXT": "-Dtls.server.mode=enforcing",
    }
    found = system_properties(environment)
    assert found == {
        "tls.enable": "true", "tls.config.file": "/a folder/tls.properties", "tls.server.mode": "enforcing",
    }  # fmt: skip
    settings = read([TlsSettings], [], overrides=found).of(TlsSettings)
    assert settings.is_client and settings.config_file == Path("/a folder/tls.properties")
    assert system_properties({"JAVA_OPT": "-Dtls.enable='true"}) == {"tls.enable": "'true"}
    assert system_properties({}) == {}


def test_one_word_wrong_in_a_mode_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="allowed is disabled or permissive or enforcing"):
        read([TlsSettings], [], overrides={"tls.server.mode": "enforced"})
