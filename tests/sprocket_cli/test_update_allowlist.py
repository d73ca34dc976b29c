"""Update requests change what the allowlist holds and nothing else: every declared key, hostile values.

Row 24 of the promises: paths, addresses and commands can never be set from outside.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.common.config import properties
from sprocket.common.config.configuration import Configuration, read, settings_of, updated
from sprocket.common.config.rocketmq_keys import reference_keys
from sprocket.common.errors import ConfigError
from sprocket_cli.server.server_config import (
    BROKER_CLASSES,
    CONTROLLER_CLASSES,
    NAMESRV_CLASSES,
    broker_configuration,
    controller_configuration,
    namesrv_configuration,
)

SERVERS = {
    "broker": broker_configuration(None, None),
    "namesrv": namesrv_configuration(None),
    "controller": controller_configuration(None),
}
HOSTILE = (
    "/etc/passwd",
    "$(reboot)",
    "`id`",
    "../../x",
    "a\\nlistenPort=1",
    "",
    "-1",
    "99999999999999999999",
    "\\u0000",
)
CASES = [(name, setting) for name, held in SERVERS.items() for c in held.objects for setting in settings_of(type(c))]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("server", SERVERS)
def test_no_key_takes_a_hostile_value(server: str, value: str) -> None:
    before = SERVERS[server]
    keys = {setting.key for held in before.objects for setting in settings_of(type(held))} | set(reference_keys())
    # A word for all other consumers; and the text of no levels.
    allowed = {"-1": {"defaultPopShareQueueNum"}, "": {"logLevels"}}.get(value, set())
    for key in keys - allowed:
        with pytest.raises(ConfigError):
            updated(before, f"{key}={value}")


def test_nothing_that_names_a_place_can_be_changed() -> None:
    for _, setting in CASES:
        places = ("path", "dir", "addr", "ip1", "ip2", "port", "plugin", "blacklist")
        names_a_place = any(word in setting.key.lower() for word in places) and setting.type is not bool
        if names_a_place or issubclass(setting.type, Path):
            assert not setting.mutable, setting.key


def test_an_update_is_bounded_before_it_is_read() -> None:
    with pytest.raises(ConfigError, match="the limit is 65536"):
        updated(SERVERS["broker"], b"defaultTopicQueueNums=4\n" * 20_000)


# What guards a server, and what names somebody or a secret: changed at a start, by who may write its files.
GUARDS = ("acl", "auth", "tls", "secret", "password", "credential", "key", "home", "user", "white", "bind", "inner")
# These words stand in it by chance.
HARMLESS = {"filterDataCleanTimeSpan"}


def test_no_guard_can_be_changed() -> None:
    for _, setting in CASES:
        guards = any(word in setting.key.lower() for word in GUARDS) and setting.key not in HARMLESS
        assert not (guards and setting.mutable), setting.key


@pytest.mark.parametrize("server", SERVERS)
def test_a_key_that_is_allowed_brings_no_other_with_it(server: str) -> None:
    """A value that ends its line, in every way in which one could be ended, sets nothing else."""
    before = SERVERS[server]
    allowed = {setting.key for held in before.objects for setting in settings_of(type(held)) if setting.mutable}
    for key in sorted(allowed):
        for end in ("\n", "\r", "\r\n", "\\n", "\u2028", "\x85", "\x0b", "\x00", "\\u000a", "\\\n"):
            with pytest.raises(ConfigError):
                updated(before, f"{key}=1{end}listenPort=1{end}storePathRootDir=/tmp")


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "rocketmqHome", "messageStorePlugIn"])
def test_keys_that_rocketmq_blacklists_or_runs_code_by_are_refused(key: str) -> None:
    with pytest.raises(ConfigError):
        updated(SERVERS["broker"], f"{key}=x")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_update_or_a_config_error(body: bytes) -> None:
    for before in SERVERS.values():
        try:
            after, changed = updated(before, body)
        except ConfigError:
            continue
        assert isinstance(after, Configuration)
        assert set(changed) <= {setting.key for _, setting in CASES if setting.mutable}


@given(st.binary(max_size=300))
def test_any_file_is_a_configuration_or_a_config_error(content: bytes) -> None:
    for declarations in (BROKER_CLASSES, NAMESRV_CLASSES, CONTROLLER_CLASSES):
        try:
            read(declarations, properties.parse(content, "x.conf"), "x.conf")
        except ConfigError as error:
            assert "x.conf" in str(error)
