"""`mqadmin` itself: its commands are found by name, in upper and lower case."""

import click
import pytest
from click.testing import CliRunner

from sprocket_cli.mqadmin.main import main


@pytest.mark.parametrize("name", ["topicList", "topiclist", "TOPICLIST"])
def test_a_command_is_found_in_any_case(name: str) -> None:
    found = main.get_command(click.Context(main), name)
    assert found is not None and found.name == "topicList"
    for arguments in ([name, "--help"], ["help", name]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0 and "List all topics." in done.output


def test_help_names_what_is_no_command() -> None:
    done = CliRunner().invoke(main, ["help", "topicLists"])
    assert done.exit_code == 2 and "The sub command topicLists not exist." in done.output
    assert CliRunner().invoke(main, ["topicLists"]).exit_code == 2


@pytest.mark.parametrize("arguments", [["addBroker", "-c", "x"], ["rocksdbconfigtojson"], ["help", "exportPopRecord"]])
def test_a_command_without_meaning_here_says_why(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "does not exist here. " in done.output
