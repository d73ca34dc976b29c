"""Which quota holds for a resource, and what becomes of buckets when quotas change."""

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.plan.version import PlanVersion
from broker.quota.bucket import Kind
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import MAX_RECENT, Quotas
from broker.quota.rules import Patterns, check, share
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from tests.clock import ManualClock


class Rig:
    def __init__(self, folder: Path) -> None:
        self.clock, self.version = ManualClock(), PlanVersion()
        self.file = ConfigFile(folder / "quotas.json")
        self.table = QuotaTable(self.file, self.clock, self.version)
        self.quotas = Quotas(self.table, self.clock)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def channel(address: str = "10.0.0.1", account: str | None = None, *, is_trusted: bool = False) -> Any:
    attributes = {} if account is None else {"proven_account": account}
    return SimpleNamespace(
        peer=(address, 1), attributes=attributes, charged=None, is_trusted=is_trusted, read_after=lambda seconds: None
    )


def test_the_name_itself_precedes_the_longest_prefix() -> None:
    names = ("topic:*", "topic:a*", "topic:ab*", "topic:abc")
    patterns = Patterns([Quota(name, messages_in=1) for name in names])
    found = {name: patterns.find(name) for name in ("abc", "abd", "ac", "x")}
    assert {name: quota and quota.name for name, quota in found.items()} == {
        "abc": "topic:abc", "abd": "topic:ab*", "ac": "topic:a*", "x": "topic:*",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("quota", "says"),
    [
        (Quota("Orders", messages_in=1), "dimension:pattern"),
        (Quota("team:a", messages_in=1), "dimension:pattern"),
        (Quota("topic:", messages_in=1), "dimension:pattern"),
        (Quota("topic:a*b", messages_in=1), "only at its end"),
        (Quota("topic:a\n", messages_in=1), "printable"),
        (Quota("topic:" + "a" * 255, messages_in=1), "at most 255"),
        (Quota("topic:a"), "sets no limit"),
        (Quota("topic:a", messages_in=-1), "from 0"),
        (Quota("group:a", messages_in=1), "no meaning for a group"),
        (Quota("account:a", storage_bytes=1), "no meaning for a account"),
        (Quota("topic:a", messages_in=1, burst_millis=0), "burst_millis"),
        (Quota("topic:a", messages_in=1, drops_oldest=True), "needs storage_bytes"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_with_the_reason(quota: Quota, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        check(quota)


def test_a_quota_survives_in_its_file(rig: Rig) -> None:
    rig.table.set(Quota("topic:Orders", messages_in=7, is_soft=True))
    rig.table.set(Quota("group:G", messages_out=7))
    rig.table.delete("group:G")
    other = QuotaTable(rig.file, rig.clock, PlanVersion())
    other.load()
    assert other.by_name == {"topic:Orders": Quota("topic:Orders", messages_in=7, is_soft=True)}
    assert other.data_version.counter == rig.table.data_version.counter == 3


def test_a_change_drops_all_plans(rig: Rig) -> None:
    before = rig.version.number
    rig.table.set(Quota("topic:Orders", messages_in=7))
    assert rig.version.number > before


def test_a_replica_takes_over_the_table_whole(rig: Rig) -> None:
    rig.table.set(Quota("topic:Orders", messages_in=7))
    rig.table.replace(QuotaTableBody({"topic:New": Quota("topic:New", messages_in=1)}))
    assert list(rig.quotas.by_name) == ["topic:New"]
    assert not rig.quotas.of_send("Orders")
    assert rig.quotas.of_send("New")


def test_all_who_are_charged_for_one_resource_share_its_bucket(rig: Rig) -> None:
    rig.table.set(Quota("account:a", messages_in=10))
    rig.table.set(Quota("address:*", messages_in=10))
    rig.table.set(Quota("topic:T", messages_in=10, messages_out=10))
    rig.table.set(Quota("group:G", bytes_out=10))
    ones = [rig.quotas.callers_in(channel(account="a")) for _ in range(2)]
    assert ones[0] == ones[1] and len(ones[0]) == 2
    assert rig.quotas.callers_in(channel("10.0.0.2")) != rig.quotas.callers_in(channel("10.0.0.3"))
    assert [bucket.kind for bucket in rig.quotas.of_read("T", "G")] == [Kind.MESSAGES_OUT, Kind.BYTES_OUT]
    assert [bucket.kind for bucket in rig.quotas.of_send("T")] == [Kind.MESSAGES_IN]


def test_a_connection_that_signs_for_another_account_is_charged_to_that(rig: Rig) -> None:
    rig.table.set(Quota("account:*", messages_in=10))
    one = channel(account="a")
    (first,) = rig.quotas.callers_in(one)
    one.attributes["proven_account"], one.charged = "b", None  # as the gate does
    (second,) = rig.quotas.callers_in(one)
    assert (first.of, second.of) == ("account a", "account b")


def test_a_change_of_another_quota_leaves_the_debt_of_a_bucket(rig: Rig) -> None:
    rig.table.set(Quota("topic:T", messages_in=10))
    rig.quotas.of_send("T")[0].take(100)
    rig.table.set(Quota("topic:U", messages_in=10))
    assert rig.quotas.of_send("T")[0].level == -90
    rig.table.set(Quota("topic:T", messages_in=1000))
    assert rig.quotas.of_send("T")[0].wait_s() == pytest.approx(0.091)


def test_the_buckets_of_addresses_are_bounded_but_for_those_in_use(rig: Rig) -> None:
    rig.table.set(Quota("address:*", messages_in=10))
    used = channel("used")
    (bucket,) = rig.quotas.callers_in(used)
    for number in range(MAX_RECENT + 10):
        rig.quotas.callers_in(channel(f"10.{number}"))
    gc.collect()
    assert len(list(rig.quotas.buckets())) == MAX_RECENT + 1
    assert rig.quotas.callers_in(channel("used")) == (bucket,)


def test_topics_of_the_broker_and_of_retries_have_no_quota(rig: Rig) -> None:
    rig.table.set(Quota("topic:*", messages_in=1, messages_out=1))
    rig.table.set(Quota("group:*", messages_out=1))
    for topic in ("%RETRY%G", "%DLQ%G", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
        assert not rig.quotas.of_send(topic)
    assert not rig.quotas.of_read("T", "CID_RMQ_SYS_TRANS")
    assert [bucket.of for bucket in rig.quotas.of_read("%RETRY%G", "G")] == ["consumer group G"]


def test_a_cluster_wide_quota_is_divided_by_its_shares(rig: Rig) -> None:
    rig.table.set(Quota("topic:T", messages_in=1000, is_cluster_wide=True))
    rig.table.set(Quota("topic:U", messages_in=1000))
    buckets = rig.quotas.of_send("T") + rig.quotas.of_send("U")
    rig.quotas.set_shares(0.5, {"topic:T": 0.25})
    assert [(bucket.rate, bucket.burst) for bucket in buckets] == [(250, 250), (1000, 1000)]
    rig.table.set(Quota("topic:V", messages_in=1000, is_cluster_wide=True))
    assert rig.quotas.of_send("V")[0].rate == 500


@pytest.mark.parametrize("asked", [(0, 0, 0), (5, 0, 0), (1, 2, 3), (1e6, 1, 0)])
def test_shares_add_up_to_the_limit(asked: tuple[float, ...]) -> None:
    shares = [share(own, [*asked[:at], *asked[at + 1 :]], 0) for at, own in enumerate(asked)]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0.2 / 3
    assert [own for _, own in sorted(zip(asked, shares, strict=True))] == sorted(shares)


def test_a_broker_that_knows_nothing_of_the_others_takes_its_equal_part() -> None:
    assert share(100.0, [], 3) == share(0.0, [], 3) == 0.25
    known = [share(own, [3 - own], 1) for own in (1.0, 2.0)]
    assert sum(known) == pytest.approx(2 / 3)


def test_all_topics_of_a_namespace_share_its_quota_and_all_namespaces_that_of_their_tenant(rig: Rig) -> None:
    rig.table.set(Quota("namespace:shop|*", messages_in=1, messages_out=2))
    rig.table.set(Quota("tenant:shop", messages_in=3))
    orders, paid, billing = (rig.quotas.of_send(f"shop|{name}") for name in ("orders%A", "orders%B", "billing%A"))
    assert orders == paid
    own, of_tenant = orders
    other, same_tenant = billing
    assert own is not other and of_tenant is same_tenant
    assert rig.quotas.of_send("Plain") == rig.quotas.of_send("shop%A") == rig.quotas.of_send("shops|orders%A") == ()
    assert rig.quotas.of_send("%RETRY%shop|orders%readers") == ()  # exempt, as every retry


def test_reads_count_for_the_namespace_of_the_group(rig: Rig) -> None:
    rig.table.set(Quota("namespace:shop|orders", messages_out=2))
    assert rig.quotas.of_read("other%T", "other%readers") == ()
    for topic in ("other%T", "shop|orders%T", "%RETRY%shop|orders%readers"):
        (bucket,) = rig.quotas.of_read(topic, "shop|orders%readers")
        assert bucket.kind is Kind.MESSAGES_OUT


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_clients_of_a_proxy_do_not_share_one_part_of_the_loop_unless_it_says_for_whom_it_asks(
    rig: Rig, is_trusted: bool
) -> None:
    rig.table.set(Quota("topic:Orders", messages_in=7))
    quotas = Quotas(rig.table, rig.clock, own_account="cluster")
    proxy = channel(account=None if is_trusted else "cluster", is_trusted=is_trusted)
    other = channel(account="team")
    for one in (proxy, other):
        quotas.worked(one, 1.0)
    assert not quotas.has_overworked(proxy)
    assert quotas.has_overworked(other)
    quotas.charge_caller(proxy, "team", "10.0.0.2")
    assert quotas.has_overworked(proxy)
