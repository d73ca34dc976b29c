"""What a refusal says, and that no expression costs more than its bounds allow."""

import pytest

from broker.filter.parser import MAX_DEPTH, MAX_IN_ITEMS, MAX_OPERATIONS
from broker.filter.sql_filter import SqlFilter
from broker.filter.tokens import MAX_EXPRESSION_CHARS, InvalidExpression
from sprocket.remoting.codes import ResponseCode


@pytest.mark.parametrize(
    ("expression", "position", "cause"),
    [
        ("", 1, "expected a value, found the end"),
        ("a >", 4, "expected a value, found the end"),
        ("a and between 2 and 10", 7, "expected a value, found 'BETWEEN'"),
        ("a between 10 and 0", 3, "BETWEEN 10 AND 0 holds for no value"),
        ("a between 1 or 2", 13, "expected AND, found 'OR'"),
        ("a = 'x", 5, "the text does not end"),
        ("a.b = 1", 2, "nothing begins with '.'"),
        ("a is not 5", 10, "expected NULL, found '5'"),
        ("a not like 'x'", 7, "expected keyword, found 'like'"),
        ("a not null", 7, "NOT before 'NULL' means nothing"),
        ("(a = 1", 7, "expected ), found the end"),
        ("a in ()", 7, "expected string, found ')'"),
        ("5 in ('5')", 3, "only a property may precede IN"),
        ("a = NULL", 3, "compare with IS NULL or IS NOT NULL"),
        ("a > 'x'", 3, "'>' compares only numbers and properties"),
        ("a = 1 and 'x'", 7, "the operand before it is neither true nor false"),
        ("'x'", 4, "the operand before it is neither true nor false"),
        ("a > 9223372036854775808", 5, "'9223372036854775808' does not fit into 64 bits"),
        ("a > 1e999", 5, "'1e999' is too large or too small for a double"),
    ],
)
def test_a_refusal_names_position_and_cause(expression: str, position: int, cause: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        SqlFilter(expression)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.value.position == position
    assert str(refused.value) == f"invalid SQL92 filter, position {position}: {cause}"


def _items(count: int) -> str:
    return "a in (" + ",".join(f"'{number}'" for number in range(count)) + ")"


LARGEST = {
    "parentheses": (
        "(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH,
        "(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1),
    ),
    "prefixes": ("not " * MAX_DEPTH + "a", "not " * (MAX_DEPTH + 1) + "a"),
    "signs": ("- " * MAX_DEPTH + "5 = a", "- " * (MAX_DEPTH + 1) + "5 = a"),
    "terms": (
        " or ".join(["a = 1"] * (MAX_OPERATIONS // 2)),
        " or ".join(["a = 1"] * (MAX_OPERATIONS // 2 + 1)),
    ),
    "chain": ("a" + " = a" * MAX_OPERATIONS, "a" + " = a" * (MAX_OPERATIONS + 1)),
    "items": (_items(MAX_IN_ITEMS), _items(MAX_IN_ITEMS + 1)),
    "characters": ("a = 1".ljust(MAX_EXPRESSION_CHARS), "a = 1".ljust(MAX_EXPRESSION_CHARS + 1)),
}


@pytest.mark.parametrize("kind", LARGEST)
def test_bounds(kind: str) -> None:
    largest, too_large = LARGEST[kind]
    SqlFilter(largest).matches(b"a\x011")
    with pytest.raises(InvalidExpression):
        SqlFilter(too_large)


def test_all_bounds_at_once_need_no_deep_stack() -> None:
    nested = "a = 1"
    for _ in range(MAX_DEPTH - 1):
        nested = f"not ({nested} = a or b)"
    assert SqlFilter(nested).matches(b"a\x011") in (True, False)


@pytest.mark.parametrize(
    "text", ["'" + "''" * 30_000, "/*" + "*/*" * 20_000, "1" * 60_000, "1" * 60_000 + ".", "a = " + "-" * 60_000]
)
def test_hostile_text_is_read_in_one_pass(text: str) -> None:
    with pytest.raises(InvalidExpression):
        SqlFilter(text)


@pytest.mark.parametrize(
    "value", ["1" * 32_000, "0" * 32_000 + "x", "1" * 32_000 + "e", "0x" + "f" * 32_000, "٠" * 9_000]
)
def test_hostile_values_are_read_in_one_pass(value: str) -> None:
    properties = f"a\x01{value}\x02".encode()
    for expression in ("a > 5", "a > 5000000000", "a > 5.5", "a > a"):
        SqlFilter(expression).matches(properties)


def test_names_that_look_like_another_are_not_found() -> None:
    assert SqlFilter("a = 'x'").matches(b"a\x01x")
    assert SqlFilter("a is null").matches(b"ba\x01x\x02b\x01a\x01x\x02")
    assert SqlFilter("a is null").matches(b"a\x01\x02")
    assert SqlFilter("a = 'last'").matches(b"a\x01first\x02a\x01last\x02a\x01\x02")
