"""The dialect of bodies, both ways."""

import sys
from types import FrameType

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sprocket.common.errors import ProtocolError
from sprocket.common.next_turn import at_once
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.registration import RegisterBrokerBody, inflate
from sprocket.remoting.bodies.route import BrokerData, TopicRouteData
from sprocket.remoting.bodies.stats import TopicOffset, TopicStatsTable
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.codec.bare_keys import MAX_OBJECT_KEYS
from sprocket.remoting.codec.fastjson import STEP_ITEMS, dumps, in_steps, loads

ROUTE = TopicRouteData(broker_datas=[BrokerData("c", "b", {0: "127.0.0.1:1", 1: "127.0.0.1:2"})])


@pytest.mark.parametrize("count", [0, 1, STEP_ITEMS - 1, STEP_ITEMS, STEP_ITEMS + 1, 5 * STEP_ITEMS])
def test_steps_encode_the_same_text(count: int) -> None:
    pairs = [(MessageQueue("t", "b", number), TopicOffset(0, number, 7)) for number in range(count)]
    steps = in_steps(iter(pairs), dict)
    assert len(list(steps)) == count // STEP_ITEMS
    table = at_once(in_steps(iter(pairs), dict))
    assert dumps(TopicStatsTable(table, 1.5)) == dumps(TopicStatsTable(dict(pairs), 1.5))
    elements = [queue if number % 3 else None for number, (queue, _) in enumerate(pairs)]
    assert dumps([at_once(in_steps(elements, list, step_items=2))]) == dumps([elements])
    nulls = {str(number): None if number % 4 else number for number in range(count)}
    assert dumps({"a": at_once(in_steps(nulls.items(), dict, step_items=3))}) == dumps({"a": nulls})


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


# What could be taken for the end of a key, a string or a number.
texts = st.text(st.sampled_from('ab"\\{}[],: 01-\0é'), max_size=8)
queues = st.builds(MessageQueue, texts, texts, st.integers(-(2**31), 2**31 - 1))
leaves = st.booleans() | st.integers(-(2**53), 2**53) | texts


def named(value: object) -> object:
    """What is read for a value that was written with other keys than texts."""
    if isinstance(value, dict):
        names = {key: dumps(key).decode() if isinstance(key, MessageQueue) else str(key) for key in value}
        return {names[key]: named(item) for key, item in value.items()}
    return [named(item) for item in value] if isinstance(value, list) else value


@given(
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.integers(-(2**63), 2**63) | texts | queues, inner, max_size=4)
        ),
        max_leaves=20,
    ).filter(lambda value: isinstance(value, dict)),
    st.sampled_from(["", " ", "\n\t "]),
)
def test_numbers_objects_and_texts_as_keys(document: dict[object, object], space: str) -> None:
    keys = {str(key) for key in document}
    assume(len(keys) == len(document))
    written = dumps(document).decode()
    assert loads((space + written + space).encode(), dict[str, object]) == named(document)


def test_space_beside_keys() -> None:
    text = b'{ 0 : 1 ,\n-7\t:{ {"queueId": 1, "b":"}:{,5:"} : [1 , 2] , {} : 3 } , "9:" : "\\",8:" }'
    assert loads(text, dict[str, object]) == {
        "0": 1,
        "-7": {'{"queueId": 1, "b":"}:{,5:"}': [1, 2], "{}": 3},
        "9:": '",8:',
    }


def calls(data: bytes) -> int:
    """How many functions of Python it takes to read `data`."""
    count = 0

    def seen(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        loads(data, dict[str, object])
    except ProtocolError:
        pass
    finally:
        sys.setprofile(None)
    return count


def test_numbers_as_keys_take_no_steps_of_their_own_however_many_they_are() -> None:
    counts = [calls(dumps(dict.fromkeys(range(size), "10.0.0.1:10911"))) for size in (100, 50_000)]
    assert counts[0] == counts[1] < 100


def test_objects_as_keys_take_few_steps_and_may_not_be_endless() -> None:
    tables = [{MessageQueue("topic", "broker", number): number for number in range(size)} for size in (1000, 2000)]
    counts = [calls(dumps(table)) for table in tables]
    assert counts[1] - counts[0] < 10 * 1000
    endless = b"{" + b",".join([b"{}:0"] * (MAX_OBJECT_KEYS + 1)) + b"}"
    with pytest.raises(ProtocolError, match="no JSON"):
        loads(endless, dict[str, object])


@pytest.mark.parametrize(
    "piece",
    [b"{", b"[", b'"', b'\\"', b",", b" ", b", ", b"1", b",1", b"b:2,", b"{}", b"{0:", b'"":', b"\0", b"{true:", b"{a"],
)
def test_what_is_no_json_takes_few_steps(piece: bytes) -> None:
    text = b'{0:1,"' + piece * (512 * 1024 // len(piece)), b"{0:1," + piece * (512 * 1024 // len(piece))
    for one in text:
        assert calls(one) < 100
        with pytest.raises(ProtocolError):
            loads(one[:4096], dict[str, object])


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


def test_control_characters_in_texts_are_read_also_beside_numbers_as_keys() -> None:
    assert loads(b'{1:"a\tb\0c\n","k":\n"\x01"}', dict) == {"1": "a\tb\0c\n", "k": "\x01"}
    for wrong in (b"{\0:1}", b'{1:\x01"a"}', b'{\0"a"\0:1}'):
        with pytest.raises(ProtocolError):
            loads(wrong, dict)
