"""Configuration files as operators write them: what is taken, what is warned about, what stops the start."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from sprocket.common.config import configuration, properties
from sprocket.common.config.rocketmq_keys import reference_keys
from sprocket.common.errors import ConfigError


class Role(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True)
class ServerConfig:
    name: str = field(default="here", metadata={"key": "brokerName", "doc": "Name."})
    port: int = field(
        default=10911, metadata={"key": "listenPort", "doc": "Port.", "minimum": 0, "maximum": 65535, "mutable": False}
    )
    create: bool = field(default=True, metadata={"key": "autoCreateTopicEnable", "doc": "Create.", "mutable": True})
    queues: int = field(
        default=8, metadata={"key": "defaultTopicQueueNums", "doc": "Queues.", "minimum": 1, "mutable": True}
    )
    role: Role = field(default=Role.ASYNC_MASTER, metadata={"key": "brokerRole", "doc": "Role."})
    derived: int = 7

    def check(self) -> None:
        if self.name == "forbidden":
            raise ConfigError("brokerName = 'forbidden': allowed is any other")


@dataclass(frozen=True)
class PathConfig:
    root: Path = field(default_factory=lambda: Path("/d"), metadata={"key": "storePathRootDir", "doc": "Root."})
    log: Path | None = field(default=None, metadata={"key": "storePathCommitLog", "doc": "Log."})
    port: int = field(default=1, metadata={"key": "listenPort", "doc": "Port, here too."})


BOTH = (ServerConfig, PathConfig)


def read(text: str, environment: dict[str, str] | None = None) -> configuration.Configuration:
    return configuration.read(BOTH, properties.parse(text), "broker.conf", environment=environment or {})


def test_one_file_feeds_every_class_that_declares_a_key() -> None:
    made = read("brokerName = a \nlistenPort=7\nautoCreateTopicEnable = FALSE\nbrokerRole=SLAVE\nstorePathRootDir=/x")
    assert made.of(ServerConfig) == ServerConfig("a", 7, create=False, role=Role.SLAVE)
    assert made.of(PathConfig) == PathConfig(Path("/x"), None, 7)
    assert made.notices == ()


def test_absent_keys_keep_their_defaults() -> None:
    assert read("").objects == (ServerConfig(), PathConfig())


def test_empty_optional_value_is_none() -> None:
    assert read("storePathCommitLog =").of(PathConfig).log is None


def test_paths_know_the_home_of_the_user_and_of_rocketmq() -> None:
    made = read(
        "storePathRootDir=${user.home}/store\nstorePathCommitLog=$ROCKETMQ_HOME/log", {"ROCKETMQ_HOME": "/opt/rocketmq"}
    )
    assert made.of(PathConfig).root == Path.home() / "store"
    assert made.of(PathConfig).log == Path("/opt/rocketmq/log")


def test_path_of_an_unset_home_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="ROCKETMQ_HOME is not set"):
        read("storePathRootDir=${ROCKETMQ_HOME}/store")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenPort=70000", "listenPort = '70000': allowed is an integer from 0 to 65535"),
        ("listenPort=many", "listenPort = 'many': allowed is an integer from 0 to 65535"),
        ("listenPort=", "listenPort = '': allowed is an integer from 0 to 65535"),
        ("defaultTopicQueueNums=0", "defaultTopicQueueNums = '0': allowed is an integer from 1 to 2147483647"),
        ("defaultTopicQueueNums=2147483648", "allowed is an integer from 1 to 2147483647"),
        ("defaultTopicQueueNums=٣", "allowed is an integer"),
        ("autoCreateTopicEnable=yes", "autoCreateTopicEnable = 'yes': allowed is true or false"),
        ("brokerRole=MASTER", "brokerRole = 'MASTER': allowed is ASYNC_MASTER or SLAVE"),
        ("storePathRootDir=", "storePathRootDir = '': allowed is a path"),
        ("brokerName=forbidden", "allowed is any other"),
    ],
)
def test_bad_value_names_file_line_key_and_what_is_allowed(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"# a comment\n{line}\n")
    assert str(caught.value).startswith("broker.conf:2: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "notice"),
    [
        ("brokerNme", "unknown key; did you mean brokerName?"),
        ("autocreatetopicenable", "unknown key; did you mean autoCreateTopicEnable?"),
        ("fileReservedTimes", "unknown key; did you mean fileReservedTime?"),
        ("qqqq", "unknown key"),
        (
            "fileReservedTime",
            "a key of RocketMQ (MessageStoreConfig, default 72) that this server does not support; it has no effect",
        ),
    ],
)
def test_key_that_has_no_effect_is_named(key: str, notice: str) -> None:
    made = read(f"\n{key}=1")
    assert made.notices == (f"broker.conf:2: {key}: {notice}",)


def test_of_two_values_the_last_holds_and_it_is_said() -> None:
    made = read("brokerName=a\nbrokerName=b")
    assert made.of(ServerConfig).name == "b"
    assert made.notices == ("broker.conf:2: brokerName stands here and in line 1; this one holds",)


def test_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_text("brokerName=a\n")
    made = configuration.load(BOTH, path, {"brokerName": "c"})
    assert made.of(ServerConfig).name == "c"
    with pytest.raises(ConfigError, match=r"^command line: listenPort = 'x'"):
        configuration.load(BOTH, path, {"listenPort": "x"})


def test_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file"):
        configuration.load(BOTH, tmp_path / "none.conf")


def test_printed_is_in_the_order_of_declaration_and_as_java_prints() -> None:
    assert list(configuration.printed(read("brokerName=a"))) == [
        "brokerName=a",
        "listenPort=10911",
        "autoCreateTopicEnable=true",
        "defaultTopicQueueNums=8",
        "brokerRole=ASYNC_MASTER",
        "storePathRootDir=/d",
        "storePathCommitLog=",
        "listenPort=1",
    ]


def test_important_keys_are_those_of_rocketmq() -> None:
    keys = [line.partition("=")[0] for line in configuration.printed(read(""), important_only=True)]
    assert "defaultTopicQueueNums" not in keys
    assert {"brokerName", "autoCreateTopicEnable", "storePathRootDir"} < set(keys)


@dataclass(frozen=True)
class GuardedConfig:
    password: str = field(default="", repr=False, metadata={"key": "password", "doc": "Of no use.", "secret": True})


def test_a_secret_is_read_and_never_shown() -> None:
    without = configuration.read([GuardedConfig], [])
    told = configuration.read([GuardedConfig], properties.parse("password=once upon a time"))
    assert told.of(GuardedConfig).password == "once upon a time"
    assert list(configuration.printed(without)) == ["password="]
    assert list(configuration.printed(told)) == ["password=******"]
    assert "once" not in configuration.to_properties(told) + repr(told)
    with pytest.raises(ConfigError) as refused:
        configuration.updated(told, "password=another")
    assert "another" not in str(refused.value)


def test_properties_text_is_read_back() -> None:
    made = read("brokerName= a\\\\b\nlistenPort=1\nautoCreateTopicEnable=false")
    text = configuration.to_properties(made)
    assert text.splitlines() == sorted(text.splitlines())
    assert read(text).objects == made.objects


def test_update_changes_what_the_allowlist_holds() -> None:
    before = read("")
    after, changed = configuration.updated(before, "autoCreateTopicEnable=false\ndefaultTopicQueueNums=8\n")
    assert changed == {"autoCreateTopicEnable": "false"}
    assert after.of(ServerConfig) == ServerConfig(create=False)
    assert before.of(ServerConfig).create


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listenPort=5", "listenPort cannot be changed while the server runs; set it in the server's file and restart"),
        ("storePathRootDir=/etc", "storePathRootDir cannot be changed"),
        ("noSuchKeyAtAll=1", "noSuchKeyAtAll: unknown key"),
        ("defaultTopicQueueNums=0", "allowed is an integer from 1"),
    ],
)
def test_update_is_all_or_nothing(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration.updated(read(""), f"autoCreateTopicEnable=false\n{text}")


def test_reference_knows_the_keys_of_rocketmq() -> None:
    keys = reference_keys()
    assert len(keys) > 450
    assert keys["flushDiskType"] == (
        "MessageStoreConfig",
        "flushDiskType",
        "SYNC_FLUSH|ASYNC_FLUSH",
        "ASYNC_FLUSH",
        True,
    )
    assert keys["scanNotActiveBrokerInterval"].type == "long"
