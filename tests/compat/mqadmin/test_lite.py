"""Lite topics with mqadmin of RocketMQ 5.5.0 and ours, against the same brokers: the same lines."""

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from sprocket_cli.mqadmin.main import COMMANDS, main
from tests.background import in_background
from tests.broker.lite.rig import GROUP, PARENT
from tests.compat import maven
from tests.compat.java_client import AdminShell
from tests.sprocket_cli.mqadmin.test_lite import Site, lite_site

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

_VERSION = "5.5.0"
_LITE_TOPICS = re.compile(r"(?<=^Lite Topics: \[).*(?=\])")
# The time is now where no message waits; that of a waiting one is in other lines, too.
_AGE = re.compile(r"\d+ \(\d+ s ago\)")
# Brokers tell the age of a client: asked twice, the time may differ by a ms.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_OF_GROUP = f"-p {PARENT} -g {GROUP}"
_COMMANDS = [
    "getBrokerLiteInfo -b {broker}",
    "getBrokerLiteInfo -c DefaultCluster -d",
    f"getParentTopicInfo -p {PARENT}",
    f"getLiteTopicInfo -p {PARENT} -l s1",
    f"getLiteTopicInfo -p {PARENT} -l s1 -s",
    f"getLiteTopicInfo -p {PARENT} -l unknown -s",
    f"getLiteClientInfo {_OF_GROUP} -c c1 -s",
    f"getLiteClientInfo {_OF_GROUP} -c unknown",
    f"getLiteGroupInfo {_OF_GROUP}",
    f"getLiteGroupInfo {_OF_GROUP} -k 1",
    f"getLiteGroupInfo {_OF_GROUP} -l s1",
    f"getLiteGroupInfo {_OF_GROUP} -l empty",
    f"triggerLiteDispatch {_OF_GROUP}",
    f"triggerLiteDispatch {_OF_GROUP} -c c1 -b broker-a",
]


@pytest.fixture(scope="module")
def shell(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminShell]:
    try:
        shell = AdminShell(tmp_path_factory.mktemp("theirs"), _VERSION)
    except maven.JavaMissingError as missing:
        pytest.skip(f"tools of RocketMQ {_VERSION}: {missing}")
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with in_background(lite_site(tmp_path_factory.mktemp("site"))) as running:
        yield running


def lines_of(output: str) -> list[str]:
    """The lines in order, and the lite topics of a line, too: RocketMQ's come out of hash tables."""
    return sorted(
        _LITE_TOPICS.sub(_sorted_names, _MOMENT.sub("<time>", _AGE.sub("<ms> (<n> s ago)", line)))
        for line in output.splitlines()
        if line
    )


def _sorted_names(found: re.Match[str]) -> str:
    return ", ".join(sorted(found[0].split(", ")))


@pytest.mark.parametrize("command", _COMMANDS)
def test_same_lines(shell: AdminShell, site: Site, command: str) -> None:
    words = [*command.format(broker=site.addresses["broker-a"]).split(), "-n", site.namesrv]
    said = shell.run(*words)
    assert "Exception" not in said, said
    assert lines_of(CliRunner().invoke(main, words).stdout) == lines_of(said)
    assert len(said.splitlines()) > 1


def test_every_command_of_theirs_is_ours(shell: AdminShell) -> None:
    listed = {line.split()[0] for line in shell.run("").splitlines() if line.startswith("   ")}
    lite = {name for name in listed if "Lite" in name or "ParentTopic" in name}
    assert len(lite) == 6 and lite <= set(COMMANDS["lite"])
