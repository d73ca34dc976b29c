from copy import copy
from pathlib import Path

import pytest

from broker.config.live_config import LiveConfig
from broker.subscription.subscription_groups import SubscriptionGroups
from sprocket.common import failpoints
from sprocket.common.errors import DiskFull, RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.message.topic_names import SYSTEM_GROUPS
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


def table(root: Path, **changes: object) -> SubscriptionGroups:
    config = LiveConfig(broker_config(**changes), store_config(root))
    groups = SubscriptionGroups(config, ConfigFile(root / "g.json"), ManualClock())
    groups.load()
    return groups


def test_system_groups_are_there(tmp_path: Path) -> None:
    assert set(table(tmp_path).by_name) == set(SYSTEM_GROUPS)


def test_group_is_created_on_first_use_and_kept(tmp_path: Path) -> None:
    groups = table(tmp_path)
    assert groups.get("CG") is None
    created = groups.find("CG")
    assert created == SubscriptionGroupConfig("CG")
    assert table(tmp_path).get("CG") == created
    assert table(tmp_path).data_version.counter == 1


def test_group_is_made_for_reading_while_the_disk_is_full(tmp_path: Path) -> None:
    groups = table(tmp_path)
    failpoints.arm("atomic_file.before_sync=error:ENOSPC")
    try:
        assert groups.find("CG") == SubscriptionGroupConfig("CG")
        with pytest.raises(DiskFull, match="No space left"):
            groups.update([SubscriptionGroupConfig("Asked")])
    finally:
        failpoints.arm(None)
    assert "CG" in groups
    assert "Asked" not in groups
    assert table(tmp_path).get("CG") is None
    groups.update([SubscriptionGroupConfig("Other")])
    assert table(tmp_path).get("CG") == SubscriptionGroupConfig("CG")


def test_group_is_not_created_where_that_is_forbidden(tmp_path: Path) -> None:
    assert table(tmp_path, auto_create_subscription_group=False).find("CG") is None
    assert table(tmp_path).find("a b") is None
    assert table(tmp_path).find("a" * 120) is not None
    assert table(tmp_path).find("a" * 121) is None


def test_an_old_group_with_a_long_name_goes_on(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update([SubscriptionGroupConfig("a" * 248)])
    assert table(tmp_path).find("a" * 248) is not None


def test_update_and_delete(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update([SubscriptionGroupConfig("CG", retry_max_times=3)])
    assert groups.delete("CG")
    assert not groups.delete("CG")
    assert table(tmp_path).get("CG") is None


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"+x": "1"}, "unsupported key: x"),
        ({"+lite.bind.topic": ""}, "lite.bind.topic=: allowed is the name of a topic"),
        ({"+lite.sub.model": "Both"}, "lite.sub.model=Both: allowed is one of Shared, Exclusive"),
        ({"+lite.sub.client.quota": "-2"}, "lite.sub.client.quota=-2: allowed is a number, or -1"),
        ({"+lite.sub.client.max.event.cnt": "9"}, "lite.sub.client.max.event.cnt=9: allowed is a number from 10"),
        ({"+priority.factor": "101"}, "priority.factor=101: allowed is a number from 0 to 100"),
        ({"+priority.factor": "-1"}, "priority.factor=-1: allowed"),
        ({"+priority.factor": ""}, "priority.factor=: allowed"),
        ({"-priority.factor": ""}, "only add attribute is supported while creating"),
    ],
)
def test_wrong_attributes_are_refused_and_nothing_is_kept(tmp_path: Path, changes: dict[str, str], remark: str) -> None:
    groups = table(tmp_path)
    with pytest.raises(RequestError, match=remark):
        groups.update([SubscriptionGroupConfig("Good"), SubscriptionGroupConfig("CG", attributes=changes)])
    assert "Good" not in groups


def test_attributes_stay_until_they_are_changed(tmp_path: Path) -> None:
    groups = table(tmp_path)

    def attributes(**changes: str) -> dict[str, str]:
        named = {f"{sign}priority.factor": value for sign, value in zip("+-", changes.values(), strict=False)}
        groups.update([SubscriptionGroupConfig("CG", attributes=named)])
        return table(tmp_path).by_name["CG"].attributes

    assert attributes() == {}
    assert attributes(add="0") == attributes() == {"priority.factor": "0"}
    assert attributes(add="100") == {"priority.factor": "100"}
    groups.update([SubscriptionGroupConfig("CG", attributes={"-priority.factor": ""})])
    assert groups.by_name["CG"].attributes == {}


def test_the_table_is_written_as_fastjson_does_it(tmp_path: Path) -> None:
    """Without what is null, wherever that stands, and with what only looks like it."""
    groups = table(tmp_path)
    policy = GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1, 2, 3))
    subscribed = (SimpleSubscriptionData("Orders", "TAG", "*", 7),)
    configs = [
        SubscriptionGroupConfig("plain"),
        SubscriptionGroupConfig("exponential", group_retry_policy=policy),
        SubscriptionGroupConfig("customized", group_retry_policy=GroupRetryPolicy("C", None, CustomizedRetryPolicy())),
        SubscriptionGroupConfig("subscribed", subscription_data_set=subscribed),
        SubscriptionGroupConfig('odd,"subscriptionDataSet":null', attributes={"a": ',"customizedRetryPolicy":null'}),
    ]
    version = DataVersion(0, 1, 2)
    for chosen in (
        configs,
        configs[:4],
        [SubscriptionGroupConfig("g", subscription_data_set=(SimpleSubscriptionData(),))],
    ):
        version.next(3)
        names = {one.group_name: one for one in chosen}
        groups.replace(SubscriptionGroupTable(names, {"plain": {"Orders": 4}}, copy(version)))
        assert groups.encode() == dumps(groups.snapshot())
