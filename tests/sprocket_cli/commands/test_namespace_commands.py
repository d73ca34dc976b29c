"""`sprocket namespace` against a running cluster."""

import json
from uuid import uuid4

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket_cli import exit_codes
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.test_topic_commands import sprocket


def test_limits_are_set_listed_obeyed_and_deleted(cluster: Cluster) -> None:
    name = f"shop|{uuid4().hex[:8]}"
    done = sprocket(
        cluster, "namespace", "limits", name, "--max-topics", "1", "--message-type", "FIFO", "--topic-attribute",
        "message.type=FIFO",
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith(f"the limits of namespace {name} are set at "), done.stderr
    assert sprocket(cluster, "topic", "create", f"{name}%Paid").returncode == 0
    refused = sprocket(cluster, "topic", "create", f"{name}%Refunded")
    assert refused.returncode == exit_codes.FAILURE and "maxTopics" in refused.stderr
    [line] = [line for line in sprocket(cluster, "namespace", "list").stdout.splitlines() if line.startswith(name)]
    assert line.split()[2:] == ["1", "0", "0", "maxTopics=1", "messageTypes=FIFO", "topicAttributes.message.type=FIFO"]
    for uses in json.loads(sprocket(cluster, "namespace", "show", name, "--json").stdout).values():
        assert (uses[name]["topics"], uses[name]["policy"]["maxTopics"]) == (1, 1)
    assert sprocket(cluster, "namespace", "delete", name).returncode == 0
    assert sprocket(cluster, "topic", "create", f"{name}%Refunded").returncode == 0


def test_messages_go_to_the_topic_of_the_namespace(cluster: Cluster) -> None:
    name = f"shop|{uuid4().hex[:8]}"
    assert sprocket(cluster, "topic", "create", f"{name}%Paid").returncode == 0
    assert sprocket(cluster, "send", "--namespace", name, "Paid", "order 1").returncode == 0
    read = sprocket(
        cluster, "consume", "--namespace", name, "Paid", "--from", "first", "--max", "1", "--wait", "30",
        "--group", "readers",
    )  # fmt: skip
    assert "order 1" in read.stdout, read.stderr
    assert "1" in sprocket(cluster, "namespace", "show", name).stdout
    wrong = sprocket(cluster, "send", "--namespace", "a|b|c", "Paid", "x")
    assert wrong.returncode == exit_codes.USAGE and "is no namespace" in wrong.stderr


def test_a_namespace_that_nobody_knows_is_said_to_be_so(cluster: Cluster) -> None:
    unknown = sprocket(cluster, "namespace", "show", "shop|none")
    assert unknown.returncode == exit_codes.FAILURE and "no master knows" in unknown.stderr
    wrong = sprocket(cluster, "namespace", "limits", "a|b|c")
    assert wrong.returncode == exit_codes.FAILURE and "is no namespace" in wrong.stderr


def masters_are(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(_: AdminClient, cluster: str, *, masters_only: bool) -> list[str]:
        return addresses if masters_only else ["127.0.0.1:2"]

    monkeypatch.setattr(AdminClient, "broker_addresses", found)


def test_what_a_lost_master_may_know_is_not_said_to_be_unknown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = next(iter(json.loads(sprocket(cluster, "namespace", "list", "--json").stdout)))
    masters_are(["127.0.0.1:1", live], monkeypatch)
    lines = sprocket(cluster, "namespace", "show", "shop|none").stderr.splitlines()
    assert lines[1].startswith("of the 1 that answered: no master knows a namespace shop|none"), lines
    assert lines[2] == "Error: 1 of 2 servers failed, see above"


@pytest.mark.parametrize("words", [["create", "shop"], ["account", "shop", "clerk"]])
def test_no_account_is_made_without_a_master(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """It would not hold at any broker."""
    asked: list[str] = []

    async def user(_: AdminClient, server: str, name: str) -> None:
        asked.append(server)

    masters_are([], monkeypatch)
    monkeypatch.setattr(AdminClient, "user", user)
    failed = sprocket(cluster, "namespace", *words, "--password", "secret")
    assert (failed.returncode, failed.stderr) == (exit_codes.FAILURE, "Error: cluster DefaultCluster has no master\n")
    assert asked == [] and failed.stdout == ""
