from pathlib import Path

import pytest

from broker.attributes import parse_changes
from broker.config.live_config import LiveConfig
from broker.names import illegal_group, illegal_new_group, illegal_topic
from broker.topic.attributes import altered
from broker.topic.topics import TopicTable
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


def table(root: Path, **changes: object) -> TopicTable:
    config = LiveConfig(broker_config(broker_cluster_name="C1", **changes), store_config(root))
    topics = TopicTable(config, ConfigFile(root / "topics.json"), ManualClock())
    topics.load()
    return topics


def test_system_topics_of_a_new_broker(tmp_path: Path) -> None:
    topics = table(tmp_path)
    assert {name: (config.write_queue_nums, config.perm) for name, config in topics.by_name.items()} == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C1": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C1_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_C1": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }
    assert all(map(topics.is_system, topics.by_name))
    assert not topics.is_system("Orders")


@pytest.mark.parametrize(("wanted", "got"), [(4, 4), (8, 8), (99, 8), (-1, 0)])
def test_topic_created_by_a_send_has_at_most_the_models_queues(tmp_path: Path, wanted: int, got: int) -> None:
    created = table(tmp_path).create_on_send("Orders", "TBW102", wanted)
    assert created == TopicConfig("Orders", got, got, 6)


def test_topic_created_by_a_send_survives_and_is_announced(tmp_path: Path) -> None:
    topics = table(tmp_path)
    announced: list[list[TopicConfig]] = []
    topics.on_change.append(announced.append)
    created = topics.create_on_send("Orders", "TBW102", 4)
    assert topics.create_on_send("Orders", "TBW102", 8) is created
    assert announced == [[created]]
    assert topics.data_version.counter == 1
    again = table(tmp_path)
    assert again.get("Orders") == created
    assert again.data_version == topics.data_version


def test_no_topic_is_created_without_permission(tmp_path: Path) -> None:
    assert table(tmp_path, auto_create_topic_enable=False).create_on_send("Orders", "TBW102", 4) is None
    topics = table(tmp_path)
    assert topics.create_on_send("Orders", "NoSuchModel", 4) is None
    assert topics.create_on_send("Orders", "SELF_TEST_TOPIC", 4) is None, "a model needs the permission to inherit"
    assert "Orders" not in topics


def test_auto_creation_may_be_turned_off_with_the_model_still_in_the_file(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.persist()
    assert table(tmp_path, auto_create_topic_enable=False).create_on_send("Orders", "TBW102", 4) is None


def test_retry_topic_follows_the_order_flag(tmp_path: Path) -> None:
    topics = table(tmp_path)
    created = topics.get_or_create("%RETRY%CG", 1)
    assert created == TopicConfig("%RETRY%CG", 1, 1, 6)
    assert topics.get_or_create("%RETRY%CG", 5, order=True).order
    assert topics.get_or_create("%RETRY%CG", 5).order, "None leaves it as it is"
    assert topics.get_or_create("%RETRY%CG", 5).write_queue_nums == 1


def test_what_the_file_does_not_hold_memory_does_not_hold(tmp_path: Path) -> None:
    topics = table(tmp_path)
    (tmp_path / "topics.json.tmp").mkdir()  # Nothing can be written there.
    with pytest.raises(StoreError):
        topics.create_on_send("Orders", "TBW102", 4)
    assert "Orders" not in topics
    assert topics.data_version.counter == 2, "a name server may know the topic under version 1"


def test_update_alters_attributes_and_counts_only_real_changes(tmp_path: Path) -> None:
    topics = table(tmp_path)
    assert topics.update([TopicConfig("Orders", attributes={"+message.type": "FIFO"})])
    assert topics.message_type("Orders") == "FIFO"
    assert not topics.update([TopicConfig("Orders")]), "no change of attributes is no change"
    assert topics.update([TopicConfig("Orders", attributes={"-message.type": ""})])
    assert topics.message_type("Orders") == "NORMAL"
    assert topics.data_version.counter == 2


def test_update_of_several_is_all_or_none(tmp_path: Path) -> None:
    topics = table(tmp_path)
    with pytest.raises(RequestError):
        topics.update([TopicConfig("Good"), TopicConfig("Bad", attributes={"+nonsense": "1"})])
    assert "Good" not in topics


def test_delete(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.create_on_send("Orders", "TBW102", 4)
    assert topics.delete("Orders")
    assert not topics.delete("Orders")
    assert "Orders" not in table(tmp_path)


def test_order_configuration_of_a_name_server(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.create_on_send("Orders", "TBW102", 4)
    topics.update_order(["Orders", "Elsewhere"])
    assert topics.is_order("Orders")
    assert table(tmp_path).is_order("Orders")


@pytest.mark.parametrize(
    ("text", "changes"),
    [(None, {}), ("", {}), ("+a=1,-b", {"+a": "1", "-b": ""}), ("+message.type=FIFO", {"+message.type": "FIFO"})],
)
def test_parse_attribute_changes(text: str | None, changes: dict[str, str]) -> None:
    assert parse_changes(text) == changes


@pytest.mark.parametrize("text", ["a=1", "b", "+=1", "+a=1,+a=2", ","])
def test_malformed_attribute_changes(text: str) -> None:
    with pytest.raises(RequestError):
        parse_changes(text)


@pytest.mark.parametrize(
    ("current", "changes", "reason"),
    [
        (None, {"-message.type": ""}, "only add"),
        (None, {"+nonsense": "1"}, "unsupported key"),
        (None, {"+message.type": "ODD"}, "one of"),
        ({}, {"+queue.type": "BatchCQ"}, "unchangeable"),
        ({}, {"-message.type": ""}, "nonexistent"),
        ({}, {"message.type": "FIFO"}, "unsupported|wrong"),
        (None, {"+reserve.time": "-2"}, "reserve"),
        (None, {"+message.type": "FIFO", "-message.type": ""}, "duplication"),
    ],
)
def test_refused_attribute_changes(current: dict[str, str] | None, changes: dict[str, str], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        altered(current, changes)


@pytest.mark.parametrize("name", ["", "  ", "a b", "a/b", "über", "a" * 128, "a\n"])
def test_illegal_topics(name: str) -> None:
    assert illegal_topic(name) is not None


def test_legal_names() -> None:
    assert illegal_topic("%RETRY%a-b_c|9") is None
    assert illegal_topic("a" * 127) is None
    assert illegal_group("a" * 248) is None
    assert illegal_group("a" * 249) is not None
    assert illegal_new_group("a" * 120) is None
    assert illegal_new_group("a" * 121) == f"The specified group: {'a' * 121}, is longer than group max length: 120"
    assert illegal_new_group("a b") == illegal_group("a b")
