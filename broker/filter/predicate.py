"""Compiler of a checked expression to a function over a message's encoded properties.

The function searches only for the properties in the expression.  Logic is three-valued: None is null.  A text that is
compared as a number but is none raises NotComparable, which ends the whole evaluation, as in RocketMQ.
Source: RocketMQ 5.3.3, package `org.apache.rocketmq.filter.expression`.
"""

# A filter has a function for each term.  Without this each of them would have two objects for its annotations.
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from broker.filter.expression import (
    NUMBERS,
    All,
    AnyOf,
    Cast,
    Compare,
    Constant,
    Equal,
    Expression,
    In,
    Kind,
    Negate,
    Not,
    Order,
    Part,
    Property,
    Within,
    kind_of,
)
from broker.filter.java_numbers import NotComparable, boolean_of, double_of, int_of, long_of, sign
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import encoded_name, find_last

Value: TypeAlias = str | int | float | bool | None
# Evaluates an expression on the encoded properties of a message.
Evaluate: TypeAlias = Callable[[bytes], Value]
Text: TypeAlias = Callable[[bytes], str | None]
Truth: TypeAlias = Callable[[bytes], bool | None]

_TESTS: Final[dict[Order, Callable[[float, float], bool]]] = {
    Order.GREATER: operator.gt,
    Order.GREATER_EQUAL: operator.ge,
    Order.LESS: operator.lt,
    Order.LESS_EQUAL: operator.le,
}
_NUMBER_OF: Final[dict[Kind, Callable[[str], float]]] = {
    Kind.INT: int_of,
    Kind.LONG: long_of,
    Kind.DOUBLE: double_of,
}
_CONVERT: Final[dict[Kind, Callable[[str], Value]]] = {**_NUMBER_OF, Kind.BOOLEAN: boolean_of}
_HOLDS: Final[dict[Part, Callable[[str, str], bool]]] = {
    Part.ANY: str.__contains__,
    Part.START: str.startswith,
    Part.END: str.endswith,
}


def truth_of(expression: Expression) -> Truth:
    """Return the function of an expression that is true, false or null."""
    match expression:
        case All(terms):
            return _all([truth_of(term) for term in terms])
        case AnyOf(terms):
            return _any([truth_of(term) for term in terms])
        case Not(operand):
            return _not(truth_of(operand))
        case Equal(left, right):
            return _equal(left, right)
        case Compare(order, left, right):
            return _compare(order, left, right)
        case Cast(operand):
            return _cast(_property(operand))
        case In(operand, items, negated):
            return _in(_property(operand), items, negated)
        case Within():
            return _within(expression)
        case Constant(value, Kind.BOOLEAN | Kind.NULL):
            return cast(Truth, _constant(value))
    raise AssertionError(f"no truth value: {type(expression).__name__}")


def _value(expression: Expression) -> Evaluate:
    """Return the function of any expression."""
    match expression:
        case Property():
            return _property(expression)
        case Constant(value):
            return _constant(value)
        case Negate(operand):
            return _negate(_value(operand), kind_of(operand))
    return truth_of(expression)


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _property(expression: Property) -> Text:
    name = encoded_name(expression.name)

    def text(properties: bytes) -> str | None:
        value = find_last(properties, name)
        return None if value is None else java_text(value)

    return text


def _negate(operand: Evaluate, kind: Kind) -> Evaluate:
    if kind in NUMBERS:
        return _constant(-cast(float, operand(b"")))

    def null(properties: bytes) -> None:
        operand(properties)  # may raise NotComparable

    return null


# Logic


def _all(terms: list[Truth]) -> Truth:
    def every(properties: bytes) -> bool | None:
        result: bool | None = True
        for term in terms:
            value = term(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return every


def _any(terms: list[Truth]) -> Truth:
    def some(properties: bytes) -> bool | None:
        result: bool | None = False
        for term in terms:
            value = term(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return some


def _not(operand: Truth) -> Truth:
    def negated(properties: bytes) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return negated


def _cast(text: Text) -> Truth:
    return lambda properties: None if text(properties) is None else False


# Texts


def _in(text: Text, items: frozenset[str], negated: bool) -> Truth:
    def listed(properties: bytes) -> bool | None:
        value = text(properties)
        return None if value is None else (value in items) is not negated

    return listed


def _within(expression: Within) -> Truth:
    search, negated = expression.search, expression.negated
    operand = _value(expression.operand)
    if not search:
        return lambda _: False
    holds = _HOLDS[expression.part]

    def within(properties: bytes) -> bool:
        value = operand(properties)
        return isinstance(value, str) and holds(value, search) is not negated

    return within


# Comparison


def _equal(left: Expression, right: Expression) -> Truth:
    if isinstance(left, Property) and isinstance(right, Constant) and right.value is not None:
        return _equal_to_constant(_property(left), right)
    left_value, right_value = _value(left), _value(right)
    same = _same(kind_of(left), kind_of(right))

    def equal(properties: bytes) -> bool | None:
        one, other = left_value(properties), right_value(properties)
        if one is None:
            return True if other is None else None
        # Not null, unlike in SQL.
        return other is not None and same(one, other)

    return equal


def _equal_to_constant(text: Text, constant: Constant) -> Truth:
    wanted, convert = constant.value, _CONVERT.get(constant.kind)
    if convert is None:

        def equal_text(properties: bytes) -> bool | None:
            value = text(properties)
            return None if value is None else value == wanted

        return equal_text

    def equal(properties: bytes) -> bool | None:
        value = text(properties)
        return None if value is None else convert(value) == wanted

    return equal


def _same(left: Kind, right: Kind) -> Callable[[Value, Value], bool]:
    """Return the comparison of two values of these kinds that are not null."""
    if left is right:
        return operator.eq
    if left is Kind.STRING and right in NUMBERS:
        number = _NUMBER_OF[right]
        return lambda one, other: number(cast(str, one)) == other
    if right is Kind.STRING and left in NUMBERS:
        number = _NUMBER_OF[left]
        return lambda one, other: one == number(cast(str, other))
    if left is Kind.STRING and right is Kind.BOOLEAN:
        return lambda one, other: boolean_of(cast(str, one)) is other
    if left is Kind.BOOLEAN and right is Kind.STRING:
        return _incomparable
    if left in NUMBERS and right in NUMBERS:
        return lambda one, other: sign(cast(float, one), cast(float, other)) == 0
    return lambda one, other: False


def _incomparable(one: Value, other: Value) -> bool:
    raise NotComparable("a truth value cannot be compared with a text")


def _compare(order: Order, left: Expression, right: Expression) -> Truth:
    test = _TESTS[order]
    left_kind, right_kind = kind_of(left), kind_of(right)
    if isinstance(left, Property) and right_kind in NUMBERS:
        return _compare_with_constant(test, _property(left), right_kind, cast(float, _value(right)(b"")))
    left_value, right_value = _value(left), _value(right)
    left_number, right_number = _number(left_kind, right_kind), _number(right_kind, left_kind)

    def compare(properties: bytes) -> bool | None:
        one = left_value(properties)
        if one is None:
            return None
        other = right_value(properties)
        if other is None:
            return None
        return test(sign(left_number(one), right_number(other)), 0)

    return compare


def _compare_with_constant(test: Callable[[float, float], bool], text: Text, kind: Kind, constant: float) -> Truth:
    number_of = _NUMBER_OF[kind]
    of_nan = test(1, 0)  # NaN is higher than every number

    def compare(properties: bytes) -> bool | None:
        value = text(properties)
        if value is None:
            return None
        number = number_of(value)
        return test(number, constant) if number == number else of_nan

    return compare


def _number(kind: Kind, other: Kind) -> Callable[[Value], float]:
    """Return the conversion of a value of `kind` to a number, for a comparison with a value of `other`."""
    if kind is Kind.STRING:
        return cast(Callable[[Value], float], _NUMBER_OF.get(other, double_of))
    return lambda value: cast(float, value)
