"""A SQL92 filter that is compiled once and then asked for each message.

Source: RocketMQ 5.3.3, `SqlFilter`, `SelectorParser.parse`.
"""

from functools import lru_cache
from typing import Final

from broker.filter.java_numbers import NotComparable
from broker.filter.parser import parse
from broker.filter.predicate import truth_of

SQL92: Final = "SQL92"
# As many as RocketMQ's parser keeps.
_KEPT: Final = 100


class SqlFilter:
    """The compiled `expression`.  Raises InvalidExpression for one that is no filter or too large."""

    __slots__ = ("_truth", "expression", "operations")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        parsed, self.operations = parse(expression)
        self._truth = truth_of(parsed)

    def evaluate(self, properties: bytes) -> bool | None:
        """True, false or null for a message with these encoded properties.  Raises NotComparable."""
        return self._truth(properties)

    def matches(self, properties: bytes) -> bool:
        """Whether a message with these encoded properties is wanted: null and what cannot be compared are not."""
        try:
            return self._truth(properties) is True
        except NotComparable:
            return False


@lru_cache(maxsize=_KEPT)
def compiled(expression: str) -> SqlFilter:
    """The filter of an expression, of which the last ones are kept.  Raises InvalidExpression."""
    return SqlFilter(expression)
