"""Options of the data source, named as in Spark's Kafka connector where it has such an option."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from spark.decode.columns import DEFAULT_COLUMNS, column_names
from spark.decode.decoder import HALF_TOPIC, DecodeOptions
from spark.files.store_directory import split_paths
from spark.options.bucket_options import BUCKET_OPTIONS, BucketSettings, read_bucket_settings
from spark.options.option_values import MAX_DIGITS, by_known_names, whole_number, yes_or_no
from spark.options.queue_options import QUEUE_OPTIONS, QueueOptions, read_queue_options
from spark.options.reading_options import READING_OPTIONS, ReadingOptions, read_reading_options
from spark.options.wire_options import WIRE_OPTIONS, read_subscription, read_wire_settings
from spark.rows.filters import TimeRange
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from spark.wire.cluster import WireSettings
    from spark.wire.pull import Subscription

MEBIBYTE: Final = 1024 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
KNOWN: Final = (
    "path",  # store directory, glob or name=directory; several separated by commas
    "paths",  # set by load([...])
    "subscribe",  # topics, separated by commas
    "subscribePattern",  # regular expression for the whole name of a topic
    "startingTimestamp",  # of the store timestamp, inclusive: ms since 1970, or ISO 8601
    "endingTimestamp",  # exclusive
    "columns",  # names, separated by commas
    "includeHeaders",  # true: also the column properties
    "minPartitions",  # minimum number of tasks if there is enough to read; default: processors of the driver
    "maxPartitionBytes",
    "filterPushdown",  # true: see `spark.source`; use the DataFrame for one query
    "maxClockStepBack",  # ms; how much lower a store timestamp may be than an earlier record's
    *READING_OPTIONS,
    *QUEUE_OPTIONS,
    *WIRE_OPTIONS,
    *BUCKET_OPTIONS,
)


@dataclass(frozen=True)
class SourceOptions:
    """Checked options."""

    paths: tuple[str, ...]
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    times: TimeRange = field(default_factory=TimeRange)
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    filter_pushdown: bool = False
    min_partitions: int = 1
    max_partition_bytes: int = 512 * MEBIBYTE
    max_clock_step_back_ms: int = 2 * 3_600_000
    queues: QueueOptions = field(default_factory=QueueOptions)
    wire: "WireSettings | None" = None
    bucket: BucketSettings | None = None
    # Filter that brokers apply; None: no filter.
    subscription: "Subscription | None" = None

    def decoding(self, broker_name: str = "") -> DecodeOptions:
        """Return the settings of the decoder."""
        return replace(self.reading, broker_name=broker_name)


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Check `options` (names in any case).  Raises ConfigError that names the option and what is allowed."""
    given = by_known_names(options, KNOWN)
    paths = split_paths(given.get("path"), given.get("paths"))
    wire = read_wire_settings(given)
    if not paths and wire is None:
        raise ConfigError(
            "option 'path' is missing: the store directory (storePathRootDir) of a broker, or a glob; "
            "or 'namesrvAddr' to read over the wire"
        )
    if "subscribe" in given and "subscribePattern" in given:
        raise ConfigError("options 'subscribe' and 'subscribePattern' exclude each other")
    topics = frozenset(_list(given["subscribe"], "subscribe")) if "subscribe" in given else None
    bucket = read_bucket_settings(given, paths)
    reading, queues = read_reading_options(given), read_queue_options(given)
    named = (topics or frozenset()) | (queues.assigned or {}).keys()
    if HALF_TOPIC.decode() in named and not reading.read_uncommitted:
        raise ConfigError(
            f"topic {HALF_TOPIC.decode()} holds uncommitted messages: set isolationLevel=read_uncommitted"
        )
    return SourceOptions(
        paths=tuple(paths),
        columns=_columns(given, reading.corrupt_column),
        topics=topics,
        topic_pattern=_pattern(given.get("subscribePattern")),
        times=TimeRange(
            _moment(given, "startingTimestamp", TimeRange().begin_ms),
            _moment(given, "endingTimestamp", TimeRange().end_ms),
        ),
        reading=reading,
        filter_pushdown=yes_or_no(given, "filterPushdown", False),
        min_partitions=whole_number(given, "minPartitions", os.cpu_count() or 1, 1, MAX_DIGITS),
        max_partition_bytes=whole_number(
            given, "maxPartitionBytes", SourceOptions.max_partition_bytes, MEBIBYTE, MAX_DIGITS
        ),
        max_clock_step_back_ms=whole_number(
            given, "maxClockStepBack", SourceOptions.max_clock_step_back_ms, 0, MAX_DIGITS
        ),
        queues=queues,
        wire=wire,
        bucket=bucket,
        subscription=None if wire is None else read_subscription(given),
    )


def _columns(given: Mapping[str, str], corrupt_column: str | None) -> tuple[str, ...]:
    named = _list(given["columns"], "columns") if "columns" in given else DEFAULT_COLUMNS
    names = column_names(named, corrupt_column)
    added = ["properties"] if yes_or_no(given, "includeHeaders", False) else []
    added += [corrupt_column] if corrupt_column is not None else []
    return (*names, *(name for name in added if name not in names))


def _list(text: str, name: str) -> list[str]:
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not values:
        raise ConfigError(f"option {name!r} is empty: give names, separated by commas")
    return values


def _pattern(text: str | None) -> str | None:
    if text == "":
        raise ConfigError("option 'subscribePattern' is empty: no topic has that name")
    try:
        return re.compile(text).pattern if text is not None else None
    except re.error as error:
        raise ConfigError(f"option 'subscribePattern': {text!r} is no regular expression: {error}") from error


def _moment(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"option {name!r}: {text!r} is neither milliseconds nor an ISO 8601 time") from error
    if moment.tzinfo is None:
        raise ConfigError(f"option {name!r}: {text!r} needs a time zone, as in {moment.isoformat()}Z")
    # Stored times are whole milliseconds, so both ends are rounded up to the next one.
    return -((_EPOCH - moment) // _MILLISECOND)
