"""A SQL92 filter that is compiled once and then asked for each message.

Source: RocketMQ 5.3.3, `SqlFilter`, `SelectorParser.parse`.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from broker.filter.expression import names_in
from broker.filter.java_numbers import NotComparable
from broker.filter.parser import parse
from broker.filter.predicate import truth_of
from sprocket.remoting.message.properties import find_last
from store.queue.record_filter import RecordFilter, ValueVerdicts

SQL92: Final = "SQL92"
# As many as RocketMQ's parser keeps.
_KEPT: Final = 100
# Verdicts that one filter keeps, and the longest values that it keeps one for.
_MOST_VERDICTS: Final = 4096
_MOST_KEPT_BYTES: Final = 256

# Of the properties that a filter names; of its only one.
Values: TypeAlias = tuple[bytes | None, ...] | bytes | None


class SqlFilter:
    """The compiled `expression`.  Raises InvalidExpression for one that is no filter or too large."""

    __slots__ = ("_names", "_record_filter", "_truth", "_verdicts", "expression", "operations")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        parsed, self.operations = parse(expression)
        self._truth = truth_of(parsed)
        self._names = [name.encode() + b"\x01" for name in sorted(names_in(parsed))]
        # Values of the properties that the expression names -> whether such a message is wanted.
        self._verdicts: dict[Values, bool] = {}
        names = self._names
        by_value = ValueVerdicts(names[0]) if len(names) == 1 else None
        self._record_filter = RecordFilter(self.matches, self.operations, by_value)

    def record_filter(self) -> RecordFilter:
        """This filter as the store asks it."""
        return self._record_filter

    def evaluate(self, properties: bytes) -> bool | None:
        """True, false or null for a message with these encoded properties.  Raises NotComparable."""
        return self._truth(properties)

    def matches(self, properties: bytes) -> bool:
        """Whether a message with these encoded properties is wanted: null and what cannot be compared are not."""
        # Most properties have few values: what was found out once is looked up.
        names = self._names
        if len(names) == 1:
            values: Values = find_last(properties, names[0])
        else:
            values = tuple([find_last(properties, name) for name in names])
        verdict = self._verdicts.get(values)
        return self._found_out(values, properties) if verdict is None else verdict

    def _found_out(self, values: Values, properties: bytes) -> bool:
        try:
            verdict = self._truth(properties) is True
        except NotComparable:
            verdict = False
        if sum(map(len, filter(None, values if isinstance(values, tuple) else [values]))) <= _MOST_KEPT_BYTES:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[values] = verdict
        return verdict


@lru_cache(maxsize=_KEPT)
def compiled(expression: str) -> SqlFilter:
    """The filter of an expression, of which the last ones are kept.  Raises InvalidExpression."""
    return SqlFilter(expression)
