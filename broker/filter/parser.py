"""Parser of SQL92 filters; refuses what RocketMQ refuses.

Written by hand, because RocketMQ's grammar has two properties that a parser library would hide: it accepts any text
after the expression, and it checks types while it parses.
Source: RocketMQ 5.3.3, `SelectorParser.jj`, `ComparisonExpression`, `ConstantExpression`, `UnaryExpression`.
"""

import math
from typing import Final

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
from broker.filter.java_numbers import NotComparable, long_of, sign
from broker.filter.tokens import InvalidExpression, Token, Tokens, TokenType

# Max depth of nesting; in RocketMQ the limit is the thread's stack.
MAX_DEPTH: Final = 64
MAX_OPERATIONS: Final = 256
MAX_IN_ITEMS: Final = 4096

_ORDERS: Final = {order.value: order for order in Order}
_PARTS: Final = {part.value: part for part in Part}
_INT_LIMIT: Final = 1 << 31
_CONSTANTS: Final = {
    "TRUE": Constant(True, Kind.BOOLEAN),
    "FALSE": Constant(False, Kind.BOOLEAN),
    "NULL": Constant(None, Kind.NULL),
}
_NULL: Final = _CONSTANTS["NULL"]


def parse(text: str) -> tuple[Expression, int]:
    """Return the filter in `text` and its number of operators.  Raises InvalidExpression."""
    parser = _Parser(text)
    return parser.filter(), parser.operations


class _Parser:
    """Recursive descent parser; its methods are ordered from OR to the strongest operator."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0
        self.operations = 0

    def filter(self) -> Expression:
        return self._truth(self._or(), self._tokens.next)

    def _or(self) -> Expression:
        first = self._and()
        if not self._tokens.is_keyword("OR"):
            return first
        terms = [self._truth(first, self._tokens.next)]
        while self._tokens.is_keyword("OR"):
            operator = self._operator()
            terms.append(self._truth(self._and(), operator))
        return AnyOf(tuple(terms))

    def _and(self) -> Expression:
        first = self._equality()
        if not self._tokens.is_keyword("AND"):
            return first
        terms = [self._truth(first, self._tokens.next)]
        while self._tokens.is_keyword("AND"):
            operator = self._operator()
            terms.append(self._truth(self._equality(), operator))
        return All(tuple(terms))

    def _equality(self) -> Expression:
        left = self._comparison()
        while self._tokens.is_keyword("IS") or self._tokens.is_sign("=", "<>"):
            operator = self._operator()
            if operator.text == "IS":
                left = self._is_null(left)
            else:
                right = self._comparison()
                _check_equal(left, right, operator)
                equal = Equal(left, right)
                left = equal if operator.text == "=" else Not(equal)
        return left

    def _is_null(self, left: Expression) -> Expression:
        negated = self._tokens.is_keyword("NOT")
        if negated:
            self._tokens.take()
        self._tokens.expect(TokenType.KEYWORD, "NULL")
        equal = Equal(left, _NULL)
        return Not(equal) if negated else equal

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            if self._tokens.is_sign(*_ORDERS):
                operator = self._operator()
                left = _compare(_ORDERS[operator.text], left, self._unary(), operator)
            elif self._tokens.is_keyword("NOT", "IN", "BETWEEN", *_PARTS):
                left = self._predicate(left)
            else:
                return left

    def _predicate(self, left: Expression) -> Expression:
        """Parse CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN, with or without NOT."""
        operator = self._operator()
        negated = operator.text == "NOT"
        if negated:
            operator = self._tokens.expect(TokenType.KEYWORD)
        if operator.text in _PARTS:
            return Within(_PARTS[operator.text], left, self._tokens.expect(TokenType.STRING).text, negated)
        if operator.text == "BETWEEN":
            return self._between(left, negated, operator)
        if operator.text == "IN":
            return self._in(left, negated, operator)
        raise InvalidExpression(operator.position, f"NOT before {operator} means nothing")

    def _between(self, value: Expression, negated: bool, operator: Token) -> Expression:
        low = self._unary()
        self._tokens.expect(TokenType.KEYWORD, "AND")
        high = self._unary()
        if negated:
            below = _compare(Order.LESS, value, low, operator)
            return AnyOf((below, _compare(Order.GREATER, value, high, operator)))
        at_least = _compare(Order.GREATER_EQUAL, value, low, operator)
        at_most = _compare(Order.LESS_EQUAL, value, high, operator)
        # The operands are comparable, so two constants are numbers here.
        if isinstance(low, Constant) and isinstance(high, Constant) and _constants_sign(high, low) < 0:
            raise InvalidExpression(operator.position, f"BETWEEN {low.value} AND {high.value} holds for no value")
        return All((at_least, at_most))

    def _in(self, left: Expression, negated: bool, operator: Token) -> Expression:
        tokens = self._tokens
        tokens.expect(TokenType.SIGN, "(")
        items = [tokens.expect(TokenType.STRING).text]
        while tokens.is_sign(","):
            if len(items) >= MAX_IN_ITEMS:
                raise InvalidExpression(tokens.next.position, f"IN lists more than {MAX_IN_ITEMS} texts")
            tokens.take()
            items.append(tokens.expect(TokenType.STRING).text)
        tokens.expect(TokenType.SIGN, ")")
        if not isinstance(left, Property):
            raise InvalidExpression(operator.position, "only a property may precede IN")
        return In(left, frozenset(items), negated)

    def _unary(self) -> Expression:
        prefixes = []
        while self._tokens.is_sign("+", "-") or self._tokens.is_keyword("NOT"):
            prefixes.append(self._operator())
            if len(prefixes) > MAX_DEPTH:
                raise self._too_deep()
        expression = self._primary()
        for prefix in reversed(prefixes):
            if prefix.text == "-":
                expression = Negate(expression)
            elif prefix.text == "NOT":
                expression = Not(self._truth(expression, prefix))
        return expression

    def _primary(self) -> Expression:
        token = self._tokens.next
        if self._tokens.is_sign("("):
            return self._parentheses()
        if self._tokens.is_keyword(*_CONSTANTS):
            self._tokens.take()
            return _CONSTANTS[token.text]
        match token.type:
            case TokenType.NAME:
                expression: Expression = Property(token.text)
            case TokenType.STRING:
                expression = Constant(token.text, Kind.STRING)
            case TokenType.INTEGER:
                expression = _integer(token)
            case TokenType.DOUBLE:
                expression = _double(token)
            case _:
                raise InvalidExpression(token.position, f"expected a value, found {token}")
        self._tokens.take()
        return expression

    def _parentheses(self) -> Expression:
        if self._depth >= MAX_DEPTH:
            raise self._too_deep()
        self._tokens.take()
        self._depth += 1
        inner = self._or()
        self._depth -= 1
        self._tokens.expect(TokenType.SIGN, ")")
        return inner

    def _operator(self) -> Token:
        """Take the next token, an operator; raise InvalidExpression if there are too many operators."""
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise InvalidExpression(self._tokens.next.position, f"more than {MAX_OPERATIONS} operators")
        return self._tokens.take()

    def _too_deep(self) -> InvalidExpression:
        return InvalidExpression(self._tokens.next.position, f"nested more than {MAX_DEPTH} levels deep")

    def _truth(self, expression: Expression, at: Token) -> Expression:
        """Return `expression` as a truth value."""
        if isinstance(expression, Property):
            return Cast(expression)
        is_constant = isinstance(expression, Constant)
        if isinstance(expression, Negate) or (is_constant and kind_of(expression) not in (Kind.BOOLEAN, Kind.NULL)):
            raise InvalidExpression(at.position, "the operand before it is neither true nor false")
        return expression


def _integer(token: Token) -> Constant:
    try:
        value = long_of(token.text.rstrip("lL"))
    except NotComparable:
        raise InvalidExpression(token.position, f"{token} does not fit into 64 bits") from None
    return Constant(value, Kind.INT if value < _INT_LIMIT else Kind.LONG)


def _double(token: Token) -> Constant:
    value = float(token.text)
    if math.isinf(value) or value == 0:
        raise InvalidExpression(token.position, f"{token} is too large or too small for a double")
    return Constant(value, Kind.DOUBLE)


def _compare(order: Order, left: Expression, right: Expression, operator: Token) -> Compare:
    for operand in (left, right):
        is_number = isinstance(operand, Property | Negate) or kind_of(operand) in NUMBERS
        if not is_number:
            raise InvalidExpression(operator.position, f"{operator} compares only numbers and properties")
    return Compare(order, left, right)


def _check_equal(left: Expression, right: Expression, operator: Token) -> None:
    if _NULL in (left, right):
        raise InvalidExpression(operator.position, "compare with IS NULL or IS NOT NULL")
    are_constants = isinstance(left, Constant) and isinstance(right, Constant)
    if are_constants and kind_of(left) is Kind.BOOLEAN and kind_of(right) is not Kind.BOOLEAN:
        raise InvalidExpression(operator.position, "a truth value cannot be compared with this constant")


def _constants_sign(left: Constant, right: Constant) -> int:
    assert isinstance(left.value, int | float)
    assert isinstance(right.value, int | float)
    return sign(left.value, right.value)
