"""SQL92 filter that is compiled once and evaluated for each message.

Source: RocketMQ 5.3.3, `SqlFilter`, `SelectorParser.parse`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from broker.filter.expression import names_in
from broker.filter.java_numbers import NotComparable
from broker.filter.parser import parse
from broker.filter.predicate import Truth, truth_of
from sprocket.remoting.message.properties import encoded_name, find_last
from store.queue.record_filter import RecordFilter

SQL92: Final = "SQL92"
# Max compiled filters in the cache, as in RocketMQ's parser.
_KEPT: Final = 100
# Max cached verdicts of one filter, and max bytes of the values of one verdict.
_MAX_VERDICTS: Final = 4096
_MAX_CACHED_BYTES: Final = 256

# Values of the properties in a filter; a single value if the filter has one property.
Values: TypeAlias = tuple[bytes | None, ...] | bytes | None


class _Matcher:
    """Whether messages match a condition over the properties `names`."""

    __slots__ = ("_names", "_truth", "_verdicts")

    def __init__(self, truth: Truth, names: Sequence[bytes]) -> None:
        self._truth = truth
        self._names = names
        # Cache: values of the properties -> whether such a message matches.
        self._verdicts: dict[Values, bool] = {}

    def matches(self, properties: bytes) -> bool:
        # Most properties have few different values, so earlier verdicts are cached.
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
        if sum(map(len, filter(None, values if isinstance(values, tuple) else [values]))) <= _MAX_CACHED_BYTES:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[values] = verdict
        return verdict


class SqlFilter:
    """Compiled `expression`.  Raises InvalidExpression if it is no filter or too large.

    `matches` tells whether a message with given encoded properties matches: not if the result is null or NotComparable.
    No part refers back to the filter: those of a client that changes its expression all the time are freed at once, not
    by a garbage collection, which would hold all requests for hundreds of ms.
    """

    __slots__ = ("_record_filter", "_truth", "expression", "matches", "operations")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        parsed, self.operations = parse(expression)
        self._truth = truth_of(parsed)
        names = [encoded_name(name) for name in sorted(names_in(parsed))]
        self.matches = _Matcher(self._truth, names).matches
        self._record_filter = RecordFilter(self.matches, self.operations, names)

    def record_filter(self) -> RecordFilter:
        """Return this filter in the store's form."""
        return self._record_filter

    def evaluate(self, properties: bytes) -> bool | None:
        """Return true, false or null for a message with these encoded properties.  Raises NotComparable."""
        return self._truth(properties)


class SqlFilters:
    """Compiled filters by their expressions; the last ones are cached.

    `now_s` is a clock.  It measures what the compilation takes, so that who asks for it can be charged.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._spent_s = 0.0
        self._cached = lru_cache(maxsize=_KEPT)(self._compiled)

    def compiled(self, expression: str) -> SqlFilter:
        """Return the filter of an expression.  Raises InvalidExpression."""
        return self._cached(expression)

    def _compiled(self, expression: str) -> SqlFilter:
        began_s = self._now_s()
        try:
            return SqlFilter(expression)
        finally:
            self._spent_s += self._now_s() - began_s

    def take_spent_s(self) -> float:
        """Return the seconds that compilations have taken since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s
