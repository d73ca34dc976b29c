"""Levels of components: what is accepted, and what an update changes."""

import logging
from collections.abc import Iterator

import pytest

from broker.config.broker_config import BrokerConfig
from controller.config import ControllerConfig
from namesrv.config import NamesrvConfig
from proxy.config import ProxyConfig
from sprocket.common.config.configuration import read
from sprocket.common.config.properties import Entry
from sprocket.common.errors import ConfigError
from sprocket.common.logs.levels import AUDIT, MAX_LEVELS, LogLevels, parse_levels

NAMES = ("", "sprocket", AUDIT, "broker", "broker.pop", "ha")


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in NAMES}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_levels_of_prefixes() -> None:
    assert parse_levels(" broker.pop=debug , ha = WARN,root=ERROR") == {"broker.pop": 10, "ha": 30, "root": 40}
    assert parse_levels("") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker=LOUD", "allowed is component=LEVEL, with level DEBUG, INFO"),
        ("broker", "allowed is component=LEVEL"),
        ("broker=INFO,", "allowed is component=LEVEL"),
        ("brokr.pop=INFO", "no such component"),
        ("=INFO", "no such component"),
        ("broker..pop=INFO", "no such component"),
        ("broker=INFO,broker=DEBUG", "stands twice"),
        (f"{AUDIT}=ERROR", "always has the level of the start"),
        (",".join(f"broker.a{number}=INFO" for number in range(MAX_LEVELS + 1)), "the limit is 64"),
        ("x" * 5_000, "the limit is 4096"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"logLevels: .*{says}"):
        parse_levels(text)


def test_an_update_replaces_the_levels_of_the_one_before() -> None:
    levels = LogLevels(logging.INFO)
    levels.apply(parse_levels("broker.pop=DEBUG,ha=ERROR"))
    assert logging.getLogger("broker.pop.revive.reviver").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("broker.server").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("ha.follower").isEnabledFor(logging.WARNING)
    levels.apply(parse_levels("root=WARNING"))
    assert not logging.getLogger("broker.pop.revive.reviver").isEnabledFor(logging.INFO)
    assert logging.getLogger("ha.follower").isEnabledFor(logging.WARNING)
    levels.apply({})
    assert logging.getLogger("broker.server").isEnabledFor(logging.INFO)


def test_no_level_silences_the_audit_log() -> None:
    LogLevels(logging.INFO).apply(parse_levels("root=ERROR,sprocket=ERROR"))
    assert logging.getLogger(AUDIT).isEnabledFor(logging.INFO)


@pytest.mark.parametrize("declaration", [BrokerConfig, NamesrvConfig, ControllerConfig, ProxyConfig])
@pytest.mark.parametrize("key", ["logLevels", "logTotalMaxBytes"])
def test_every_server_refuses_what_it_could_not_obey(declaration: type, key: str) -> None:
    values = {"logLevels": "broker=LOUD", "logTotalMaxBytes": str(2 * 1024 * 1024)}
    with pytest.raises(ConfigError, match=f"x.conf:7: {key}"):
        read([declaration], [Entry(key, values[key], 7)], "x.conf")
