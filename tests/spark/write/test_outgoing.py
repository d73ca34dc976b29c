"""Rows become messages, or are refused by name."""

from typing import Any

import pyarrow as pa
import pytest

from spark.options.sink_options import SinkOptions, read_sink_options
from spark.write.outgoing import UnsendableRow, check_columns, outgoing
from sprocket.common.errors import ConfigError

OPTIONS = SinkOptions("127.0.0.1:9876", topic="T")
PROPERTIES = pa.map_(pa.string(), pa.string())


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_every_column_has_its_place_in_the_message() -> None:
    rows = batch(
        Topic=pa.array(["A", None]),
        body=pa.array(["ä", "b"]),
        tags=pa.array(["t", None]),
        keys=pa.array(["k1 k2", None]),
        properties=pa.array([[("a", "1"), ("UNIQ_KEY", "x"), ("TIMER_OUT_MS", "5"), ("blank", " ")], None], PROPERTIES),
        shardingKey=pa.array(["s", None]),
        deliverTimeMs=pa.array([5, None], pa.int64()),
        flag=pa.array([7, None], pa.int32()),
        uniqueKey=pa.array(["u", None]),
    )
    first, second = outgoing(rows, SinkOptions("n:1", topic="T", delay_level=3, flag=9), 0)
    message = first.message
    assert (message.topic, message.body, message.tags, message.keys) == ("A", "ä".encode(), "t", "k1 k2")
    assert message.properties == {"a": "1"}  # not what brokers and clients set
    assert (message.deliver_at_ms, message.delay_level, message.flag, message.unique_key) == (5, 0, 7, "u")
    assert first.sharding_key == "s"
    assert (second.message.topic, second.message.flag, second.message.delay_level) == ("T", 9, 3)
    assert second.sharding_key is None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"body": pa.binary(), "tgas": pa.string()}, "unknown column 'tgas'; did you mean 'tags'"),
        ({"body": pa.binary(), "queueOffset": pa.int64()}, "is read, but not written"),
        ({"body": pa.int32()}, "column 'body' is int32; allowed is"),
        ({"body": pa.binary(), "queueoffset": pa.int64()}, "is read, but not written"),
        ({"tags": pa.string()}, "column 'body' is missing"),
        ({"body": pa.binary(), "Body": pa.binary()}, "column 'body' is there twice"),
    ],
)
def test_columns_are_refused_by_name(schema: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_columns(pa.schema(schema), OPTIONS)


def test_a_column_of_one_name_twice() -> None:
    schema = pa.schema([("body", pa.binary()), ("tags", pa.string()), ("tags", pa.string())])
    with pytest.raises(ConfigError, match="column 'tags' is there twice"):
        check_columns(schema, OPTIONS)


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="neither a column 'topic' nor the option"):
        check_columns(pa.schema({"body": pa.binary()}), SinkOptions("n:1"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a", "x" * 11]}, r"row 41 of this task: the body has 11 bytes, at most 10 \(maxMessageSize\)"),
        ({"body": ["a", None]}, "row 41 .*the body is null"),
        ({"body": ["a", ""]}, "row 41 .*the body is empty"),
        ({"body": ["a", "b"], "topic": ["A", "no blank"]}, "row 41 .*character that is not allowed"),
        ({"body": ["a", "b"], "keys": ["k", "x" * 40_000]}, "row 41 .*the properties have"),
        ({"body": ["a", "b"], "tags": ["k", "\x01"]}, "row 41 .*0x01"),
        ({"body": ["a", "b"], "topic": ["A", ""]}, "row 41 .*the topic is blank"),
        ({"body": ["a", "b"], "flag": [2**31 - 1, 2**31]}, "row 41 .*flag 2147483648 is no number of 32 bits"),
        ({"body": ["a", "b"], "flag": [-(2**31), -(2**31) - 1]}, "row 41 .*no number of 32 bits"),
    ],
)
def test_a_row_that_no_broker_would_take_is_named(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(UnsendableRow, match=message):
        outgoing(pa.RecordBatch.from_pydict(columns), SinkOptions("n:1", topic="T", max_message_size=10), 40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "namesrvAddr' is missing"),
        ({"namesrvAddr": " ; "}, "namesrvAddr' is empty"),
        ({"namesrvAddr": "n:1;nowhere"}, "'nowhere' is not host:port"),
        ({"namesrvaddr": "n:1", "topc": "x"}, "did you mean 'topic'"),
        ({"namesrvAddr": "n:1", "topic": "a b"}, "not allowed"),
        ({"namesrvAddr": "n:1", "accessKey": "x"}, "belong together"),
        ({"namesrvAddr": "n:1", "useTLS": "yes"}, "one of true, false"),
        ({"namesrvAddr": "n:1", "tlsTrustCertPath": "x"}, "go with useTLS=true"),
        ({"namesrvAddr": "n:1", "maxOutstanding": "0"}, "at least 1"),
        ({"namesrvAddr": "n:1", "path": "/x"}, "without a path"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sink_options(options)


def test_options_in_any_case_and_a_secret_that_is_not_shown() -> None:
    options = read_sink_options(
        {"NAMESRVADDR": "n:1", "topic": "T", "accesskey": "me", "secretkey": "hidden", "sendMsgTimeout": "1500"}
    )
    assert options.send_msg_timeout_s == 1.5
    assert options.credentials is not None and options.credentials.secret_key == "hidden"
    assert "hidden" not in repr(options)
