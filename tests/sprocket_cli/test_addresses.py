"""What is no address of a server is wrong usage of every command: one message, no traceback."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sprocket_cli import exit_codes
from sprocket_cli.main import main as sprocket
from sprocket_cli.mqadmin.main import main as mqadmin

# A word that every kind of parameter takes, for those that a command needs.
_WORDS = {"integer": "1", "integer range": "1", "float": "1", "boolean": "true"}
# What a command needs beside its required parameters.
_DATA = Path(__file__).with_name("data")
_MORE = {
    "show": ["Word"],
    "outbox run": ["--database", "sqlite:///word.db"],
    "schedule show": [],
    "trace show": [],
    "token revoke": ["--user", "word"],
    "namespace account": ["--password", "word"],
    "namespace create": ["--password", "word"],
    "namespace show": [],
    "updateUser": ["-p", "word"],
    "resetOffsetByTime": ["-s", "1"],
    "getSyncStateSet": ["-c", "Word"],
    "getBrokerEpoch": ["-c", "Word"],
    "exportMetadata": ["-t"],
    "updateOrderConf": ["-v", "broker-a:4"],
    "updateStaticTopic": ["-qn", "1", "-c", "Word"],
    "remappingStaticTopic": ["-c", "Word"],
    "updateTopicList": ["-f", str(_DATA / "topics.json")],
    "updateSubGroupList": ["-f", str(_DATA / "groups.json")],
}


def client_commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """The commands of `group` and below that ask name servers."""
    for name in group.list_commands(click.Context(group)):
        command = command_of(group, (name,))
        if isinstance(command, click.Group):
            yield from client_commands(command, *path, name)
        elif any("NAMESRV_ADDR" in str(one.envvar) for one in command.params):
            yield (*path, name)


def command_of(group: click.Group, path: tuple[str, ...]) -> click.Command:
    found: click.Command = group
    for name in path:
        assert isinstance(found, click.Group)
        command = found.get_command(click.Context(found), name)
        assert command is not None
        found = command
    return found


def needed(command: click.Command, wrong: click.Parameter) -> list[str]:
    """What the command needs, with an address for each server; nothing for `wrong`."""
    arguments = []
    for one in command.params:
        is_address = one.type.name == "HOST:PORT"
        if one is wrong or one.name == "namesrv" or not (one.required or is_address):
            continue
        if isinstance(one.type, click.Choice):
            word = str(next(iter(one.type.choices)))
        else:
            word = "127.0.0.1:1" if is_address else _WORDS.get(one.type.name, "Word")
        arguments += [word] if isinstance(one, click.Argument) else [one.opts[0], word]
    return arguments


PROGRAMS = {"sprocket": sprocket, "mqadmin": mqadmin}
COMMANDS = [(program, *path) for program, group in PROGRAMS.items() for path in client_commands(group)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("address", ["foo", "foo:bar", "127.0.0.1:99999"])
def test_a_wrong_address_is_wrong_usage(command: tuple[str, ...], address: str) -> None:
    group, path = PROGRAMS[command[0]], command[1:]
    found = command_of(group, path)
    asked = [one for one in found.params if one.name == "namesrv" or one.type.name == "HOST:PORT"]
    assert asked
    for one in asked:
        good = [] if one.name == "namesrv" else ["-n", "127.0.0.1:1"]
        done = CliRunner().invoke(
            group,
            [
                *path,
                *needed(found, one),
                *_MORE.get(" ".join(path), _MORE.get(path[-1], [])),
                *good,
                one.opts[0],
                address,
            ],
        )
        assert isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code == exit_codes.USAGE, done.output
        assert "allowed is host:port" in done.output


def test_the_message_says_what_is_allowed() -> None:
    done = CliRunner().invoke(sprocket, ["send", "Topic", "body", "-n", "foo"])
    assert done.output == (
        "Error: name server 'foo': allowed is host:port, several separated by ';', "
        "as in 127.0.0.1:9876;192.168.0.1:9876\n"
    )
    done = CliRunner().invoke(mqadmin, ["brokerStatus", "-b", "foo", "-n", "127.0.0.1:1"])
    assert done.output.endswith("'foo': allowed is host:port, as in 127.0.0.1:10911\n")


def test_commands_that_ask_a_server_are_found() -> None:
    names = {command[-1] for command in COMMANDS}
    assert {"send", "consume", "redrive", "sendMessage", "checkMsgSendRT", "copyUser"} <= names
