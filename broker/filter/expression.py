"""A SQL92 filter as a tree of typed expressions.

A property's value is always a string, so the kind of every value is known before the first message comes.
Source: RocketMQ 5.3.3, package `org.apache.rocketmq.filter.expression`.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class Kind(Enum):
    """What a value is, unless it is null."""

    STRING = auto()
    INT = auto()  # 32 bits
    LONG = auto()  # 64 bits
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()  # always null


NUMBERS = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


class Order(Enum):
    """How two values are compared."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


class Part(Enum):
    """Which part of a text is looked at."""

    ANY = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a message's property; null if it has none."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: str | int | float | bool | None
    kind: Kind


@dataclass(frozen=True, slots=True)
class Negate:
    """Minus; null for what is no number."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Cast:
    """A property where a truth value is wanted: false, or null if the message has none."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """NOT; null stays null."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class All:
    """AND of all terms, looked at from the left until one is false."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR of all terms, looked at from the left until one is true."""

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
    """CONTAINS, STARTSWITH and ENDSWITH; false for what is no text, whether negated or not."""

    part: Part
    operand: "Expression"
    search: str
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """IN, a list of texts."""

    operand: Property
    items: frozenset[str]
    negated: bool


Expression: TypeAlias = Property | Constant | Negate | Cast | Not | All | AnyOf | Equal | Compare | Within | In


def kind_of(expression: Expression) -> Kind:
    """The kind of the value of an expression."""
    if isinstance(expression, Property):
        return Kind.STRING
    if isinstance(expression, Constant):
        return expression.kind
    if isinstance(expression, Negate):
        kind = kind_of(expression.operand)
        return kind if kind in NUMBERS else Kind.NULL
    return Kind.BOOLEAN


def names_in(expression: Expression) -> set[str]:
    """The properties that an expression names."""
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
