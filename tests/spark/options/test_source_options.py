"""Options of reads: what each value means, and what is refused by its name."""

from pathlib import Path

import pytest

from spark.options.source_options import read_options
from spark.rows.filters import TimeRange
from sprocket.common.errors import ConfigError
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder

AT_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def times(**options: str) -> TimeRange:
    return read_options({"path": "/nowhere", **options}).times


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (str(AT_MS), AT_MS),
        ("2023-11-14T22:13:20Z", AT_MS),
        ("2023-11-14 23:13:20.001+01:00", AT_MS + 1),
        ("2023-11-14T22:13:20.000001Z", AT_MS + 1),
        ("2023-11-14T22:13:20.001999Z", AT_MS + 2),
        ("1969-12-31T23:59:59.9995Z", 0),
    ],
)
def test_a_moment_between_two_milliseconds_is_the_later_one(text: str, milliseconds: int) -> None:
    assert times(startingTimestamp=text).begin_ms == milliseconds
    assert times(endingTimestamp=text).end_ms == milliseconds


def test_rows_are_those_from_a_moment_to_another(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(store_timestamp=AT_MS + number) for number in range(5))
    builder.write()
    within = times(startingTimestamp="2023-11-14T22:13:20.0005Z", endingTimestamp="2023-11-14T22:13:20.0025Z")
    assert [row["queueOffset"] for row in read_rows(builder.root, times=within)] == [1, 2]


@pytest.mark.parametrize("text", ["2023-11-14", "2023-11-14T22:13:20", "2023-11-14 22:13"])
def test_a_time_without_a_zone_is_refused_with_one_that_is_right(text: str) -> None:
    with pytest.raises(ConfigError, match="needs a time zone, as in ") as refused:
        times(startingTimestamp=text)
    assert times(startingTimestamp=str(refused.value).rpartition(" ")[2]).begin_ms <= AT_MS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribePattern": ""}, "'subscribePattern' is empty"),
        ({"subscribe": " , "}, "'subscribe' is empty"),
        ({"assign": '{"RMQ_SYS_TRANS_HALF_TOPIC": [0]}'}, "isolationLevel=read_uncommitted"),
        ({"minPartitions": "1" * 19}, "of at most 18 digits"),
        ({"maxOffsetsPerTrigger": "0"}, "of at least 1"),
        ({"inflateBodies": "yes"}, "'inflateBodies': 'yes' is not one of true, false"),
        ({"failOnDataLoss": ""}, "'failOnDataLoss': '' is not one of true, false"),
        ({"filterPushDowns": "true"}, "unknown option 'filterPushDowns'; did you mean 'filterPushdown'"),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options({"path": "/nowhere", **options})


@pytest.mark.parametrize("text", ["*", " * ", "", " "])
def test_every_tag_however_it_is_written(text: str) -> None:
    """A broker takes blanks around the star for a tag of that name, and gives nothing."""
    subscription = read_options({"namesrvAddr": "h:1", "subExpression": text}).subscription
    assert subscription is not None and subscription.takes_all and subscription.expression in ("*", "")


def test_an_expression_without_a_tag() -> None:
    with pytest.raises(ConfigError, match=r"'subExpression': ' \|\| ' names no tag"):
        read_options({"namesrvAddr": "h:1", "subExpression": " || "})
