"""The dialect of bodies, both ways."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies.client import MessageQueue
from remoting.bodies.registration import RegisterBrokerBody, inflate
from remoting.bodies.route import BrokerData, TopicRouteData
from remoting.bodies.stats import TopicOffset, TopicStatsTable
from remoting.bodies.topic import DataVersion, TopicConfig
from remoting.fastjson import dumps, loads
from sprocket.common.errors import ProtocolError

ROUTE = TopicRouteData(broker_datas=[BrokerData("c", "b", {0: "127.0.0.1:1", 1: "127.0.0.1:2"})])


def test_number_keys_stand_unquoted_unless_the_standard_is_asked_for() -> None:
    assert b'"brokerAddrs":{0:"127.0.0.1:1",1:"127.0.0.1:2"}' in dumps(ROUTE)
    assert b'"brokerAddrs":{"0":"127.0.0.1:1","1":"127.0.0.1:2"}' in dumps(ROUTE, standard=True)
    assert loads(dumps(ROUTE), TopicRouteData) == ROUTE
    assert loads(dumps(ROUTE, standard=True), TopicRouteData) == ROUTE


def test_object_keys_and_nulls() -> None:
    stats = TopicStatsTable({MessageQueue("t", "b", 0): TopicOffset(1, 2, 3)})
    encoded = dumps(stats)
    assert encoded.startswith(b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:{"minOffset":1,')
    tables = loads(encoded, dict[str, msgspec.Raw | float | dict[str, dict[str, int]]])
    assert tables["offsetTable"] == {
        '{"topic":"t","brokerName":"b","queueId":0}': {"minOffset": 1, "maxOffset": 2, "lastUpdateTimestamp": 3}
    }
    assert b"orderTopicConf" not in dumps(ROUTE)


@pytest.mark.parametrize("text", [b"", b"{", b"{0}", b"{0:}", b"[1,]x", b'{"a":1', b'"\xff"', b"{" * 1000, b"[" * 1000])
def test_broken_documents(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        loads(text, dict[str, object])


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.integers(0, 99), values.filter(lambda value: value is not None), max_size=5))
def test_round_trip_through_the_dialect(document: dict[int, object]) -> None:
    def without_nulls(value: object) -> object:
        if isinstance(value, dict):
            return {str(key): without_nulls(item) for key, item in value.items() if item is not None}
        return [without_nulls(item) for item in value] if isinstance(value, list) else value

    assert loads(dumps(document), dict[str, object]) == without_nulls(document)


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_round_trip(compressed: bool) -> None:
    body = RegisterBrokerBody(filter_server_list=["f:1"])
    wrapper = body.topic_config_serialize_wrapper
    wrapper.data_version = DataVersion(1, 2, 3)
    for config in (TopicConfig("A", 4, 5, 6), TopicConfig("B", attributes={"+message.type": "FIFO"})):
        wrapper.topic_config_table[config.topic_name] = config
    assert RegisterBrokerBody.decode(body.encode(compressed), compressed, 479) == body


def test_a_body_that_inflates_without_end_is_refused() -> None:
    import zlib

    with pytest.raises(ProtocolError, match="beyond"):
        inflate(zlib.compress(bytes(10_000)), limit_bytes=9_999)
    assert inflate(zlib.compress(bytes(10_000)), limit_bytes=10_000) == bytes(10_000)


@pytest.mark.parametrize("line", ["", "a", "a b c d e", "a 1 2 x SINGLE_TAG"])
def test_a_topic_line_that_is_none(line: str) -> None:
    with pytest.raises(ProtocolError):
        TopicConfig.decode(line)
