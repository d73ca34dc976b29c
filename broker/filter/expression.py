"""SQL92 filter as a tree of typed expressions.

A property's value is always a string, so the kind of every value is known before the first message arrives.
Source: RocketMQ 5.3.3, package `org.apache.rocketmq.filter.expression`.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class Kind(Enum):
    """Type of a value that is not null."""

    STRING = auto()
    INT = auto()  # 32 bits
    LONG = auto()  # 64 bits
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()  # always null


NUMBERS = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


class Order(Enum):
    """Comparison of two values."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


class Part(Enum):
    """Part of a text that is searched."""

    ANY = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Property:
    """Value of a message's property; null if the message does not have it."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Literal."""

    value: str | int | float | bool | None
    kind: Kind


@dataclass(frozen=True, slots=True)
class Negate:
    """Minus; null for a value that is no number."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Cast:
    """Property used as a truth value: false, or null if the message does not have it."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """NOT; null stays null."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class All:
    """AND of all terms, evaluated from the left until one is false."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR of all terms, evaluated from the left until one is true."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """``=``, and IS NULL with the constant null."""

    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Compare:
    """``>``, ``>=``, ``<`` and ``<=``, of numbers and of texts that are numbers."""

    order: Order
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Within:
    """CONTAINS, STARTSWITH and ENDSWITH; false for a value that is no text, negated or not."""

    part: Part
    operand: "Expression"
    search: str
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """IN with a list of texts."""

    operand: Property
    items: frozenset[str]
    negated: bool


Expression: TypeAlias = Property | Constant | Negate | Cast | Not | All | AnyOf | Equal | Compare | Within | In


def kind_of(expression: Expression) -> Kind:
    """Return the kind of an expression's value."""
    if isinstance(expression, Property):
        return Kind.STRING
    if isinstance(expression, Constant):
        return expression.kind
    if isinstance(expression, Negate):
        kind = kind_of(expression.operand)
        return kind if kind in NUMBERS else Kind.NULL
    return Kind.BOOLEAN


def names_in(expression: Expression) -> set[str]:
    """Return the names of the properties in an expression."""
    match expression:
        case Property(name):
            return {name}
        case Not(operand) | Negate(operand) | Cast(operand) | In(operand) | Within(operand=operand):
            return names_in(operand)
        case All(terms) | AnyOf(terms):
            return set().union(*map(names_in, terms))
        case Equal(left, right) | Compare(left=left, right=right):
            return names_in(left) | names_in(right)
    return set()
