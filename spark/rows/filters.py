"""Filters that Spark pushes down: applied exactly to the rows, and used to skip parts of the log.

A filter is accepted only if its literal has the type of the column; Spark applies the others.  Accepted filters follow
SQL: a comparison with null is not true, nor is its negation.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as pushed

from spark.decode.columns import COLUMN_TYPES, TIMESTAMP
from spark.decode.decoder import Chunk

_COMPARISONS: Final = {
    pushed.EqualTo: pc.equal,
    pushed.GreaterThan: pc.greater,
    pushed.GreaterThanOrEqual: pc.greater_equal,
    pushed.LessThan: pc.less,
    pushed.LessThanOrEqual: pc.less_equal,
}
_TEXT_MATCHES: Final = {
    pushed.StringStartsWith: pc.starts_with,
    pushed.StringEndsWith: pc.ends_with,
    pushed.StringContains: pc.match_substring,
}
# Order of evaluation: columns that are cheap to decode come first.
_COSTS: Final = {"topic": 1, "brokerName": 0, "tags": 2, "keys": 2, "msgId": 2, "bornHost": 3, "storeHost": 3}
_NOT_FILTERED_HERE: Final = ("body", "bodyString", "properties")
_INT64: Final = np.iinfo(np.int64)


@dataclass(frozen=True)
class TimeRange:
    """Store timestamps from `begin_ms` (inclusive) to `end_ms` (exclusive)."""

    begin_ms: int = _INT64.min
    end_ms: int = _INT64.max

    def intersect(self, other: "TimeRange") -> "TimeRange":
        return TimeRange(max(self.begin_ms, other.begin_ms), min(self.end_ms, other.end_ms))

    @property
    def is_bounded(self) -> bool:
        return self != TimeRange()


@dataclass
class RowFilter:
    """Conjunction of the accepted filters, and of topics and times from the options.

    `topics` None: every topic; an empty set: no topic.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    times: TimeRange = field(default_factory=TimeRange)
    _filters: list[pushed.Filter] = field(default_factory=list)

    def accept(self, filters: Iterable[pushed.Filter]) -> list[pushed.Filter]:
        """Add every filter that can be applied exactly; return the others."""
        left = []
        for candidate in filters:
            if is_exact(candidate):
                self._filters.append(candidate)
            else:
                left.append(candidate)
        self._filters.sort(key=lambda each: _COSTS.get(_column(each), 0))
        return left

    def topics_to_read(self) -> frozenset[str] | None:
        """Return the topics that may have rows; None: all; an empty set: nothing to read."""
        topics = self.topics
        for each in self._filters:
            if _column(each) != "topic":
                continue
            match each:
                case pushed.EqualTo(_, value) | pushed.EqualNullSafe(_, value):
                    named = frozenset({value})
                case pushed.In(_, values):
                    named = frozenset(values)
                case _:
                    continue
            topics = named if topics is None else topics & named
        return None if topics is None else frozenset(topic for topic in topics if topic is not None)

    def may_have(self, topic: str) -> bool:
        """Return whether messages of a topic may be rows."""
        topics, pattern = self.topics_to_read(), self.topic_pattern
        return (topics is None or topic in topics) and (pattern is None or re.fullmatch(pattern, topic) is not None)

    def times_to_read(self) -> TimeRange:
        """Return the store timestamps that may have rows; a range that ends before its start is empty."""
        times = self.times
        for each in self._filters:
            if _column(each) == "storeTimestamp":
                times = times.intersect(_time_range(each))
        return times

    def apply(self, chunk: Chunk) -> None:
        """Keep only the rows that pass."""
        if self.times.is_bounded:
            stored = chunk.integers("store_timestamp")
            chunk.filter((stored >= self.times.begin_ms) & (stored < self.times.end_ms))
        if self.topics is not None:
            wanted = pa.array(sorted(self.topics), pa.string())
            chunk.filter(_mask(pc.is_in(chunk.column("topic"), value_set=wanted)))
        if self.topic_pattern is not None:
            topics = chunk.column("topic")
            matching = [topic for topic in topics.unique().to_pylist() if re.fullmatch(self.topic_pattern, topic)]
            chunk.filter(_mask(pc.is_in(topics, value_set=pa.array(matching, pa.string()))))
        for each in self._filters:
            if not len(chunk):
                return
            chunk.filter(_mask(_evaluate(each, chunk.column(_column(each)))))

    def passes_nulls(self) -> bool:
        """Return whether a row with only null columns passes, as a row for damage has.

        Topics and times from the options do not exclude it, because its own are unknown.
        """
        return all(_is_true_of_null(each) for each in self._filters)


def _is_true_of_null(each: pushed.Filter) -> bool:
    match each:
        case pushed.IsNull() | pushed.EqualNullSafe(_, None):
            return True
        case pushed.Not(pushed.IsNotNull()):
            return True
        case pushed.Not(pushed.EqualNullSafe(_, value)):
            return value is not None
        case _:
            return False


def is_exact(candidate: pushed.Filter) -> bool:
    """Return whether `candidate` gives the same result here as in Spark."""
    match candidate:
        case pushed.Not(child):
            return not isinstance(child, pushed.Not) and is_exact(child)
        case pushed.IsNull() | pushed.IsNotNull():
            values: Sequence[object] = ()
        case pushed.In(_, values):
            pass
        case pushed.EqualNullSafe(_, value):
            values = (value,)
        case _ if type(candidate) in _COMPARISONS or type(candidate) in _TEXT_MATCHES:
            values = (_literal(candidate),)
        case _:
            return False
    path = _path(candidate)
    if len(path) != 1 or path[0] not in COLUMN_TYPES or path[0] in _NOT_FILTERED_HERE:
        return False
    return all(value is None or _has_type(value, COLUMN_TYPES[path[0]]) for value in values)


def _has_type(value: object, column_type: pa.DataType) -> bool:
    if column_type == TIMESTAMP:
        return isinstance(value, datetime) and value.tzinfo is not None
    if pa.types.is_integer(column_type):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << (column_type.bit_width - 1)
    return isinstance(value, str)


def _column(each: pushed.Filter) -> str:
    return _path(each.child if isinstance(each, pushed.Not) else each)[0]


def _path(each: Any) -> tuple[str, ...]:
    """Return the column of a filter; `Filter` itself declares none, its subclasses do."""
    path: tuple[str, ...] = each.attribute
    return path


def _literal(each: Any) -> object:
    return each.value


def _evaluate(each: pushed.Filter, column: pa.Array) -> pa.Array:
    """Return true, false or null for each row."""
    match each:
        case pushed.Not(child):
            return pc.invert(_evaluate(child, column))
        case pushed.IsNull():
            return pc.is_null(column)
        case pushed.IsNotNull():
            return pc.is_valid(column)
        case pushed.EqualNullSafe(_, None):
            return pc.is_null(column)
        case pushed.EqualNullSafe(_, value):
            return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
        case pushed.In(_, values):
            return _is_in(column, values)
        case _ if type(each) in _TEXT_MATCHES:
            return _TEXT_MATCHES[type(each)](column, _literal(each))
        case _:
            return _COMPARISONS[type(each)](column, pa.scalar(_literal(each), column.type))


def _is_in(column: pa.Array, values: Sequence[object]) -> pa.Array:
    """Return `column IN (values)`: null for a null cell, and without a match if a value is null."""
    known = pa.array([value for value in values if value is not None], column.type)
    found = pc.is_in(column, value_set=known)
    unknown = pc.is_null(column)
    if len(known) < len(values):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _mask(result: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = pc.fill_null(result, False).to_numpy(zero_copy_only=False)
    return mask


def _time_range(each: pushed.Filter) -> TimeRange:
    """Return the range of whole milliseconds that may pass: never narrower than the filter."""
    match each:
        case pushed.GreaterThan(_, value) | pushed.GreaterThanOrEqual(_, value) if value is not None:
            return TimeRange(begin_ms=_milliseconds(value))
        case pushed.LessThan(_, value) | pushed.LessThanOrEqual(_, value) if value is not None:
            return TimeRange(end_ms=_milliseconds(value) + 1)
        case pushed.EqualTo(_, value) if value is not None:
            return TimeRange(_milliseconds(value), _milliseconds(value) + 1)
        case pushed.In(_, values):
            moments = [_milliseconds(value) for value in values if value is not None]
            return TimeRange(min(moments), max(moments) + 1) if moments else TimeRange(0, 0)
        case _:
            return TimeRange()


def _milliseconds(moment: Any) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return int(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)
