"""SQL92 subscriptions of groups: their filters, their lifetime, and the content of the file."""

import json
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.filter import consumer_filters
from broker.filter.bloom_positions import bloom_positions
from broker.filter.consumer_filters import ConsumerFilters, ConsumerFilterTable, retry_group
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty
from store.config.store_config import StoreConfig
from tests.clock import ManualClock

DAY_MS = 86_400_000


def sql(expression: str, version: int, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


class Rig:
    """Filters with a file and a clock of their own."""

    def __init__(self, root: Path) -> None:
        self.path = root / "consumerFilter.json"
        self.clock = ManualClock()
        self.filters = self.new()

    def new(self) -> ConsumerFilters:
        config = LiveConfig(BrokerConfig(broker_name="b", broker_ip1="127.0.0.1"), StoreConfig())
        return ConsumerFilters(config, ConfigFile(self.path), self.clock)

    def expression(self, topic: str = "T", group: str = "G") -> str | None:
        held = self.filters.find(topic, group)
        return None if held is None else held.sql.expression


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_newest_version_wins(rig: Rig) -> None:
    rig.filters.subscribed("G", [sql("a > 1", 5), SubscriptionData("Tagged", "x")])
    assert (rig.expression(), rig.expression("Tagged"), len(rig.filters)) == ("a > 1", None, 1)
    rig.filters.subscribed("G", [sql("a > 2", 5)])
    rig.filters.subscribed("G", [sql("a > 3", 4)])
    assert rig.expression() == "a > 1"
    rig.filters.subscribed("G", [sql("a > 2", 6)])
    assert rig.expression() == "a > 2"
    rig.filters.subscribed("G", [sql("a > 2", 7)])
    held = rig.filters.find("T", "G")
    assert held is not None
    assert held.data.client_version == 7


@pytest.mark.parametrize("wrong", [sql("a >", 9), SubscriptionData("T", "x", sub_version=9, expression_type="XPATH")])
def test_a_filter_that_does_not_compile_leaves_none(rig: Rig, wrong: SubscriptionData) -> None:
    rig.filters.subscribed("G", [wrong])
    assert (rig.expression(), len(rig.filters)) == (None, 0)
    rig.filters.subscribed("G", [sql("a > 1", 5)])
    rig.filters.subscribed("G", [wrong])
    assert rig.expression() is None


def test_dead_filters_are_forgotten_after_a_day_and_live_again_before(rig: Rig) -> None:
    rig.filters.subscribed("G", [sql("a > 1", 5), sql("b > 1", 5, "U")])
    rig.clock.advance(10)
    rig.filters.subscribed("G", [sql("a > 1", 5)])
    rig.filters.group_left("Other")
    rig.clock.advance(DAY_MS / 1000 - 1)
    rig.filters.clean()
    assert len(rig.filters) == 2
    rig.clock.advance(1)
    rig.filters.clean()
    assert (rig.expression(), rig.expression("U")) == ("a > 1", None)
    rig.filters.group_left("G")
    rig.clock.advance(DAY_MS / 1000 - 1)
    rig.filters.subscribed("G", [sql("a > 1", 5)])
    rig.clock.advance(DAY_MS / 1000)
    rig.filters.clean()
    assert rig.expression() == "a > 1"


def test_no_more_filters_than_the_bound(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filters, "MAX_FILTERS", 3)
    rig.filters.subscribed("G", [sql("a > 1", 5, f"T{number}") for number in range(5)])
    assert len(rig.filters) == 3
    rig.filters.subscribed("G", [sql("a > 2", 6, "T0")])
    assert rig.expression("T0") == "a > 2"


def test_no_more_characters_than_the_bound(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filters, "MAX_FILTER_CHARS", 12)
    rig.filters.subscribed("G", [sql("a > 1", 5, f"T{number}") for number in range(5)])
    assert len(rig.filters) == 2
    rig.filters.subscribed("G", [sql("a > 10", 6, "T0")])
    assert rig.expression("T0") == "a > 10"
    rig.filters.group_left("G")
    rig.clock.advance(DAY_MS / 1000)
    rig.filters.clean()
    rig.filters.subscribed("H", [sql("a > 10", 6, "T0"), sql("a > 11", 6, "T1")])
    assert len(rig.filters) == 2


def test_the_file_is_rocketmqs(rig: Rig) -> None:
    born = rig.clock.wall_ms()
    rig.filters.subscribed("G", [sql("a > 1 and b = 'x'", 5)])
    rig.filters.persist()
    filter_data = {
        "bloomFilterData": {"bitNum": 112, "bitPos": bloom_positions("G", "T")},
        "bornTime": born,
        "clientVersion": 5,
        "consumerGroup": "G",
        "dead": False,
        "deadTime": 0,
        "expression": "a > 1 and b = 'x'",
        "expressionType": "SQL92",
        "topic": "T",
    }
    assert json.loads(rig.path.read_bytes()) == {
        "filterDataByTopic": {"T": {"groupFilterData": {"G": filter_data}, "topic": "T"}}
    }
    assert not rig.filters.is_unsaved
    rig.clock.advance(100)
    rig.filters = rig.new()
    rig.filters.load()
    held = rig.filters.find("T", "G")
    assert held is not None
    assert held.sql.matches(b"a\x012\x02b\x01x\x02")
    assert held.data.dead_time == born + 70_000, "a connected member subscribes again"


def test_rocketmqs_file_is_written_back_byte_for_byte() -> None:
    text = (Path(__file__).parents[1] / "data" / "consumerFilter.json").read_bytes()
    assert pretty(loads(text, ConsumerFilterTable)) == text


def test_bloom_positions_are_those_of_rocketmq() -> None:
    # From BloomFilter.createByFn(20, 32).
    assert bloom_positions("CG", "Orders") == [94, 69, 22]
    assert bloom_positions("a-very-long-consumer-group-name", "Some-Topic_日本") == [29, 45, 88]
    assert bloom_positions("1234567890", "12345") == [88, 106, 45]


def test_retry_messages_are_chosen_by_the_filter_of_their_topic(rig: Rig) -> None:
    rig.filters.subscribed("G", [sql("a > 1", 5)])
    wants = rig.filters.retry_records("G").matches
    assert wants(b"RETRY_TOPIC\x01T\x02a\x012\x02")
    assert not wants(b"RETRY_TOPIC\x01T\x02a\x011\x02")
    assert wants(b"RETRY_TOPIC\x01Other\x02a\x011\x02")
    assert wants(b"a\x011\x02")


@pytest.mark.parametrize(("topic", "group"), [("%RETRY%G", "G"), ("%RETRY%G+T", "G"), ("T", None), ("%DLQ%G", None)])
def test_group_of_a_retry_topic(topic: str, group: str | None) -> None:
    assert retry_group(topic) == group
