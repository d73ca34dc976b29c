"""Checks of `sprocket doctor` on given facts."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.cluster_health import ClusterLook
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo
from sprocket.remoting.bodies.stats import HAConnectionRuntimeInfo, HARuntimeInfo
from sprocket_cli.doctor.checks import Finding, Level, findings, worst
from sprocket_cli.doctor.facts import (
    BrokerState,
    Certificate,
    Cluster,
    Facts,
    Local,
    Machine,
    NameServerState,
    Port,
    StorePlace,
)  # fmt: skip

GIB = 1024**3
MACHINE = Machine(1 << 20, 1 << 20, 8 * GIB, 4 * GIB)
SAFE = {
    "mappedFileSizeCommitLog": str(GIB),
    "authenticationEnabled": "true",
    "aclEnable": "false",
    "tls.server.mode": "enforcing",
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "autoCreateTopicEnable": "false",
}
STORE = StorePlace("/store", 100 * GIB, 50 * GIB, "ext4", sync_ms=1.0)
LOCAL = Local(SAFE, STORE, [Port("listenPort", 10911, False)], [Certificate("tls.server.certPath", "/c.pem", 90)])
MASTER = BrokerState("a", 0, "h:1", sprocket_version="2", skew_ms=300, skew_error_ms=1000, keys=SAFE)
SLAVE = replace(MASTER, broker_id=1, address="h:2")
KNOWN = frozenset({"h:1", "h:2"})
WELL = {"sendStatus": "confirmed"}
LOOK = ClusterLook(ClusterInfo({"a": BrokerData("c", "a", {0: "h:1", 1: "h:2"})}), {"h:1": WELL, "h:2": WELL}, {})
CLUSTER = Cluster(
    [NameServerState("n:1", brokers=KNOWN), NameServerState("n:2", brokers=KNOWN)], [MASTER, SLAVE], LOOK, 0
)
SILENT = AdminError("timeout")
NOTHING = ClusterLook(ClusterInfo(), {}, {})
BEHIND = HAConnectionRuntimeInfo("h:9", 0, 10, False)
HEADLESS = ClusterInfo({"a": BrokerData("c", "a", {1: "h:2"})})


def looking(**changes: Any) -> Facts:
    return Facts(MACHINE, None, replace(CLUSTER, look=replace(LOOK, **changes)))


def bad(facts: Facts) -> list[tuple[str, str]]:
    return [(one.check, one.level.value) for one in findings(facts) if one.level is not Level.OK]


def test_a_sound_cluster_has_nothing_to_do() -> None:
    found = findings(Facts(MACHINE, LOCAL, CLUSTER))
    assert bad(Facts(MACHINE, LOCAL, CLUSTER)) == []
    assert worst(found) is Level.OK
    assert {one.check for one in found} == {
        "sends", "replicas", "limits", "memory", "disk", "ports", "certificates", "settings", "name servers", "clock",
        "versions",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(replace(MACHINE, open_files=1024)), ("limits", "warning")),
        (Facts(replace(MACHINE, max_map_count=65530)), ("limits", "warning")),
        (Facts(replace(MACHINE, memory_available_bytes=1000)), ("memory", "warning")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, error="Permission denied"))), ("disk", "failure")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, free_bytes=GIB))), ("disk", "failure")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, free_bytes=10 * GIB))), ("disk", "warning")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, file_system="nfs4"))), ("disk", "failure")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, file_system="tmpfs"))), ("disk", "failure")),
        (Facts(MACHINE, replace(LOCAL, store=replace(STORE, sync_ms=50.0))), ("disk", "warning")),
        (Facts(MACHINE, replace(LOCAL, ports=[Port("listenPort", 1, True)])), ("ports", "failure")),
        (Facts(MACHINE, replace(LOCAL, certificates=[Certificate("k", "p", -1)])), ("certificates", "failure")),
        (Facts(MACHINE, replace(LOCAL, certificates=[Certificate("k", "p", 5)])), ("certificates", "warning")),
        (Facts(MACHINE, replace(LOCAL, certificates=[Certificate("k", "p", error="x")])), ("certificates", "failure")),
        (Facts(MACHINE, replace(LOCAL, keys=SAFE | {"authenticationEnabled": "false"})), ("settings", "warning")),
        (Facts(MACHINE, replace(LOCAL, keys=SAFE | {"tls.server.mode": "permissive"})), ("settings", "warning")),
        (Facts(MACHINE, replace(LOCAL, keys=SAFE | {"flushDiskType": "ASYNC_FLUSH"})), ("settings", "warning")),
        (looking(runtime={"h:1": WELL, "h:2": SILENT}), ("replicas", "failure")),
        (looking(replication={"h:1": HARuntimeInfo(ha_connection_info=[BEHIND])}), ("replication", "warning")),
        (looking(controllers={"c:1": SILENT}), ("controllers", "failure")),
        (Facts(MACHINE, None, replace(CLUSTER, brokers=[MASTER])), ("routes", "warning")),
        (Facts(MACHINE, None, replace(CLUSTER, brokers=[])), ("routes", "failure")),
        (Facts(MACHINE, None, replace(CLUSTER, brokers=[MASTER, replace(SLAVE, skew_ms=-5000)])), ("clock", "warning")),
        (Facts(MACHINE, None, replace(CLUSTER, brokers=[MASTER, replace(SLAVE, skew_ms=99e3)])), ("clock", "failure")),
        (
            Facts(MACHINE, None, replace(CLUSTER, brokers=[MASTER, replace(SLAVE, sprocket_version="1")])),
            ("versions", "warning"),
        ),
    ],
)
def test_each_trouble_is_found_alone_and_says_what_to_do(facts: Facts, expected: tuple[str, str]) -> None:
    assert bad(facts) == [expected]
    assert all(one.advice for one in findings(facts) if one.level is not Level.OK)


@pytest.mark.parametrize(
    "changes",
    [{"runtime": {"h:1": {"sendStatus": "one_copy"}, "h:2": WELL}}, {"info": HEADLESS}, {"info": ClusterInfo()}],
)
def test_sends_that_are_not_confirmed_are_the_first_finding(changes: dict[str, Any]) -> None:
    first = findings(looking(**changes))[0]
    assert (first.check, first.level) == ("sends", Level.FAILURE)
    assert "not confirmed" in first.text.lower()


def test_a_port_taken_by_the_broker_of_this_store_is_fine() -> None:
    local = replace(LOCAL, ports=[Port("listenPort", 1, True)], store=replace(STORE, is_in_use=True))
    assert bad(Facts(MACHINE, local)) == []


def test_name_servers_that_are_down_or_disagree() -> None:
    one, two = CLUSTER.name_servers
    down = replace(one, error="refused", brokers=frozenset())
    assert bad(Facts(MACHINE, None, replace(CLUSTER, name_servers=[down, two]))) == [("name servers", "warning")]
    assert ("name servers", "failure") in bad(
        Facts(MACHINE, None, replace(CLUSTER, name_servers=[down], brokers=[], look=NOTHING))
    )
    fewer = replace(two, brokers=frozenset({"h:1"}))
    assert bad(Facts(MACHINE, None, replace(CLUSTER, name_servers=[one, fewer]))) == [("name servers", "warning")]
    assert worst([Finding("x", Level.FAILURE, ""), Finding("y", Level.WARNING, "")]) is Level.FAILURE


def limited(*quotas: Quota) -> BrokerState:
    return replace(MASTER, quotas={quota.name: quota for quota in quotas})


def test_quotas_that_are_wrong_are_found_and_others_are_not() -> None:
    def quotas_of(*brokers: BrokerState) -> list[tuple[str, str]]:
        facts = Facts(MACHINE, None, replace(CLUSTER, brokers=list(brokers), topics=frozenset({"Orders"})))
        return [(one.level.value, one.text) for one in findings(facts) if one.check == "quotas"]

    orders, each = Quota("topic:Orders", messages_in=10), Quota("account:*", messages_in=5)
    assert quotas_of(MASTER, limited()) == []
    assert [level for level, _ in quotas_of(limited(orders))] == ["ok"]
    [(level, text)] = quotas_of(limited(orders), replace(limited(), address="h:3"))
    assert level == "warning" and "differ" in text
    [(level, text)] = quotas_of(limited(Quota("topic:Gone", messages_in=10)))
    assert level == "warning" and "no such topic" in text
    [(level, text)] = quotas_of(limited(orders, each))
    assert level == "warning" and "messages_in is above the 5 that account:* leaves" in text


def test_a_topic_with_more_than_its_namespace_or_tenant_is_found() -> None:
    paid = Quota("topic:shop|orders%Paid", messages_in=10)

    def texts(*quotas: Quota) -> list[str]:
        cluster = replace(CLUSTER, brokers=[limited(paid, *quotas)], topics=frozenset({"shop|orders%Paid"}))
        return [one.text for one in findings(Facts(MACHINE, None, cluster)) if one.check == "quotas"]

    wide = Quota("namespace:*", messages_in=5)
    (found,) = texts(wide)
    assert "messages_in is above the 5 that namespace:* leaves" in found
    found_of = texts(wide, Quota("namespace:shop|orders", messages_in=50), Quota("tenant:shop", messages_in=9))
    assert [text.partition(":")[0] for text in found_of] == ["quota namespace", "quota topic"]
    assert all("above the 9 that tenant:shop leaves" in text for text in found_of)
    (found,) = texts(Quota("namespace:shop|sales", messages_in=9), Quota("tenant:shop", messages_in=20, requests=5))
    assert found.endswith("the same at each master")
    (found,) = texts(Quota("namespace:shop|sales", messages_in=90), Quota("tenant:shop", messages_in=20))
    assert found == "quota namespace:shop|sales: messages_in is above the 20 that tenant:shop leaves"
    (found,) = texts(Quota("group:shop|sales%G", bytes_out=90), Quota("namespace:shop|sales", bytes_out=20))
    assert found == "quota group:shop|sales%G: bytes_out is above the 20 that namespace:shop|sales leaves"
    (found,) = texts(replace_struct(wide, is_soft=True), Quota("topic:shop|*", storage_bytes=1))
    assert found.endswith("bound what consumers can read, not the log on the disk")


def test_tokens_that_end_and_keys_that_are_gone_are_found() -> None:
    def texts(broker: BrokerState) -> list[str]:
        found = findings(Facts(MACHINE, None, replace(CLUSTER, brokers=[broker])))
        return [one.text for one in found if one.check == "tokens"]

    assert texts(MASTER) == []
    (found,) = texts(replace(MASTER, tokens_not_renewed="billing (2 connections, 30 s)"))
    assert found == "h:1: tokens end soon, and their clients have not renewed them: billing (2 connections, 30 s)"
    (found,) = texts(replace(MASTER, token_key_troubles="https://issuer cannot be fetched"))
    assert found.startswith("h:1: https://issuer cannot be fetched")
