"""Files of plans: those that RocketMQ's mqadmin writes are read, and ours have what it reads."""

import json

import pytest

from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.plan import check_plan, creation_plan, remapping_plan
from sprocket.static_topic.plan_file import file_name, plan_bytes, read_plan

# As fastjson writes `TopicRemappingDetailWrapper`: keys that are numbers stand without quotes.
_ITEM = (
    '{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,'
    '"timeOfStart":-1}'
)
_JAVA = (
    '{"brokerConfigMap":{"broker-a":{"attributes":{},"mappingDetail":{"bname":"broker-a","currIdMap":{},"dirty":false,'
    '"epoch":1700000000000,"hostedQueues":{0:[' + _ITEM + ']},"scope":"__global__","topic":"orders","totalQueues":1},'
    '"order":false,"perm":6,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,'
    '"writeQueueNums":1}},"brokerToMapIn":[],"brokerToMapOut":[],"epoch":1700000000000,"topic":"orders",'
    '"type":"CREATE_OR_UPDATE"}'
)


def test_a_file_of_rocketmq_is_read() -> None:
    plan = read_plan(_JAVA.encode())
    check_plan("orders", plan)
    (config,) = plan.broker_config_map.values()
    assert config.mapping_detail is not None
    (item,) = config.mapping_detail.items(0)
    assert (plan.epoch, item.bname, config.write_queue_nums) == (1_700_000_000_000, "broker-a", 1)
    assert file_name(plan, is_after=False) == "orders-1700000000000.before"
    assert file_name(plan, is_after=True) == "orders-1700000000000.after"


# The plan of a move: RocketMQ writes an item that two brokers have once, and then a reference to it.
_NEW = (
    _ITEM.replace("broker-a", "broker-b.x").replace('"gen":0', '"gen":1').replace('"logicOffset":0', '"logicOffset":-1')
)
_PATH = r"$.brokerConfigMap.broker\\-b\\.x.mappingDetail.hostedQueues[0]"
_MOVED = (
    '{"brokerConfigMap":{"broker-b.x":{"mappingDetail":{"bname":"broker-b.x","epoch":9,"hostedQueues":{0:['
    + f"{_ITEM},{_NEW}"
    + ']},"topic":"orders","totalQueues":1},"readQueueNums":1,"topicName":"orders","writeQueueNums":1},"broker-a":'
    '{"mappingDetail":{"bname":"broker-a","epoch":9,"hostedQueues":{0:[{"$ref":"'
    + _PATH
    + '[0]"},{"$ref":"'
    + _PATH
    + '[1]"}]},"topic":"orders","totalQueues":1},"readQueueNums":1,"topicName":"orders","writeQueueNums":1}},'
    '"brokerToMapIn":["broker-b.x"],"brokerToMapOut":["broker-a"],"epoch":9,"topic":"orders","type":"REMAPPING"}'
)


def test_references_of_fastjson_are_followed() -> None:
    plan = read_plan(_MOVED.encode())
    check_plan("orders", plan)
    ours, theirs = (config.mapping_detail for config in plan.broker_config_map.values())
    assert ours is not None and theirs is not None
    assert ours.items(0) == theirs.items(0)
    assert [(item.bname, item.gen) for item in theirs.items(0)] == [("broker-a", 0), ("broker-b.x", 1)]
    # One is changed without the other.
    assert ours.items(0)[1] is not theirs.items(0)[1]


@pytest.mark.parametrize(
    "path", ["", "$", "@", "..", "$.x", "$[0]", f"{_PATH}", f"{_PATH}[9]", f"{_PATH}[0].gen", "$.brokerConfigMap[0"]
)
def test_a_reference_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(MappingError, match="no plan for a static topic"):
        read_plan(_MOVED.replace(f"{_PATH}[0]", path).encode())


def test_a_file_of_ours_has_the_fields_of_rocketmq() -> None:
    created = creation_plan("orders", 1, ["broker-a"], {}, now_ms=1_699_999_999_000, random=lambda: 0)
    ours, java = json.loads(plan_bytes(created)), json.loads(_JAVA.replace("{0:", '{"0":'))
    # Neither RocketMQ nor we read it in a plan: it follows from the items.
    java["brokerConfigMap"]["broker-a"]["mappingDetail"].pop("currIdMap")
    assert ours == java
    moved = remapping_plan("orders", ["broker-b"], created.broker_config_map, now_ms=1)
    assert json.loads(plan_bytes(moved))["brokerToMapIn"] == ["broker-b"]
    assert json.loads(plan_bytes(moved))["type"] == "REMAPPING"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"topic":"t","type":"OTHER","epoch":1,"brokerConfigMap":{}}'])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(MappingError, match="no plan for a static topic"):
        read_plan(data)


def test_a_plan_without_brokers_is_refused() -> None:
    plan = read_plan(b'{"topic":"t","type":"REMAPPING","epoch":1,"brokerConfigMap":{}}')
    with pytest.raises(MappingError, match="no broker has topic t"):
        check_plan("t", plan)
