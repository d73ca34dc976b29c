"""`sprocket quota` against a running cluster."""

import asyncio
import json
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminError
from sprocket_cli import client_session, exit_codes
from sprocket_cli.mqadmin import quota
from sprocket_cli.mqadmin.main import main as admin
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.test_topic_commands import completed, sprocket


def test_a_quota_is_set_listed_used_and_deleted(cluster: Cluster) -> None:
    topic = f"Quota{uuid4().hex[:8]}"
    name = f"topic:{topic}"
    assert sprocket(cluster, "topic", "create", topic).returncode == 0
    done = sprocket(cluster, "quota", "set", name, "--messages-in", "5", "--storage-bytes", "1000000", "--soft")
    assert done.returncode == 0 and done.stdout.startswith(f"quota {name} is set at "), done.stderr
    assert sprocket(cluster, "send", topic, "x").returncode == 0
    lines = sprocket(cluster, "quota", "list").stdout.splitlines()
    [line] = [line.split() for line in lines if line.startswith(name)]
    assert sorted(line) == sorted([name, "messagesIn=5", "storageBytes=1000000", "soft", "all"])
    for uses in json.loads(sprocket(cluster, "quota", "top", "--json").stdout).values():
        [use] = [use for use in uses if use["quota"] == name and use["kind"] == "messages_in"]
        assert (use["limit"], use["usedTotal"], use["resource"]) == (5, 1, f"topic {topic}")
    assert name in sprocket(cluster, "quota", "top").stdout
    assert sprocket(cluster, "quota", "delete", name).returncode == 0
    assert name not in sprocket(cluster, "quota", "list").stdout


def test_a_quota_that_makes_no_sense_ends_with_the_brokers_reason(cluster: Cluster) -> None:
    failed = sprocket(cluster, "quota", "set", "team:a", "--requests", "5")
    assert failed.returncode == exit_codes.FAILURE
    assert "dimension:pattern" in failed.stderr
    gone = sprocket(cluster, "quota", "delete", "topic:NoSuchQuota")
    assert gone.returncode == exit_codes.FAILURE and "there is no quota" in gone.stderr


def mqadmin(cluster: Cluster, *arguments: str) -> CompletedProcess[str]:
    return completed(admin, cluster, *arguments)


def test_mqadmin_sets_shows_and_deletes_the_same_quotas(cluster: Cluster) -> None:
    topic = f"Quota{uuid4().hex[:8]}"
    of, target = f"topic:{topic}", ("-c", "DefaultCluster")
    assert mqadmin(cluster, "updateTopic", *target, "-t", topic).returncode == 0
    done = mqadmin(cluster, "updateQuota", *target, "-q", of, "--messagesIn", "5", "--soft", "--burstMillis", "20")
    assert done.returncode == 0 and f"set quota {of} to " in done.stdout, done.stderr
    (line,) = [line.split() for line in sprocket(cluster, "quota", "list").stdout.splitlines() if line.startswith(of)]
    assert line == [of, "messagesIn=5", "burstMillis=20", "soft", "all"]
    assert mqadmin(cluster, "getQuota", *target, "-q", of).stdout.splitlines()[1].split() == line
    assert sprocket(cluster, "send", topic, "x").returncode == 0
    assert of in mqadmin(cluster, "getQuotaUsage", *target).stdout
    for address in json.loads(mqadmin(cluster, "getQuota", *target, "--json").stdout):
        assert mqadmin(cluster, "deleteQuota", "-b", address, "-q", of).returncode == 0
    missing = mqadmin(cluster, "getQuota", *target, "-q", of)
    assert missing.returncode == exit_codes.FAILURE and "there is no quota" in missing.stderr


class SecondMasterFails:
    """An admin client of two masters."""

    async def broker_addresses(self, cluster: str, *, masters_only: bool) -> list[str]:
        return ["10.0.0.1:10911", "10.0.0.2:10911"]

    async def set_quota(self, address: str, wanted: Any) -> None:
        if address.startswith("10.0.0.2"):
            raise AdminError("gone")


def test_mqadmin_tells_which_masters_have_changed_if_a_later_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_session, "with_admin", lambda _, session: asyncio.run(session(SecondMasterFails())))
    done = CliRunner().invoke(quota.update_quota, ["-c", "C", "-q", "topic:T", "--requests", "1"])
    assert "set quota topic:T to 10.0.0.1:10911 success." in done.output
    assert "10.0.0.2:10911: gone" in done.output
    assert done.exit_code == 1
