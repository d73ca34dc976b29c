"""The verdicts of RocketMQ 5.3.3 are facts: those of its own tests, and those of random filters."""

import json

import pytest

from tests.broker.filter.cases import Case, our_verdict
from tests.broker.filter.make_verdicts import TARGET

AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"
PARTS = ("contains", "startswith", "endswith")
ALL_IN_ONE = "a not in ('4', '4', '5') and b between 3 and 10 and c not {} 'axbc'"

# Of `ExpressionTest`: expression, properties, verdict.  Its messages hold some values as numbers; a broker's never do.
EXPRESSION_TEST: list[tuple[str, dict[str, str], str]] = [
    *[
        (f"value {part} '{text}'", {"value": "axb"}, "TRUE")
        for part, text in zip(PARTS, ("x", "ax", "xb"), strict=True)
    ],
    *[(f"value not {p} '{t}'", {"value": "axb"}, "FALSE") for p, t in zip(PARTS, ("x", "ax", "xb"), strict=True)],
    *[(f"value {part} 'x'", {"value": "abb"}, "FALSE") for part in PARTS],
    *[(f"value not {part} 'x'", {"value": "abb"}, "TRUE") for part in PARTS],
    *[(f"value {n}{part} ''", {"value": "axb"}, "FALSE") for part in PARTS for n in ("", "not ")],
    *[(f"value {n}{part} 'x'", {}, "FALSE") for part in PARTS for n in ("", "not ")],
    *[(f"value {part} 'x'", {"value": "1.23"}, "FALSE") for part in PARTS],
    *[(f"value {part} 'x'", {"value": "true"}, "FALSE") for part in PARTS],
    *[(f"5 {n}{part} '5'", {}, "FALSE") for part in PARTS for n in ("", "not ")],
    *[(f"value {n}contains {what}", {"value": "axb"}, "REFUSED") for n in ("", "not ") for what in ("x", "123", "")],
    *[(f"'axb' {part} '{t}'", {}, "TRUE") for part, t in zip(PARTS, ("x", "ax", "xb"), strict=True)],
    *[(f"'axb' not {part} '{t}'", {}, "FALSE") for part, t in zip(PARTS, ("x", "ax", "xb"), strict=True)],
    *[(f"'axb' {part} '{t}'", {}, "FALSE") for part in PARTS for t in ("u", "", ".")],
    *[(f"'axb' not {part} '{t}'", {}, "TRUE") for part in PARTS for t in ("u", ".")],
    *[(f"'axb' not {part} ''", {}, "FALSE") for part in PARTS],
    *[(f"' ' {part} ' '", {}, "TRUE") for part in PARTS],
    *[(f"' ' not {part} ' '", {}, "FALSE") for part in PARTS],
    *[(f"'s' {part} '\\'", {}, "FALSE") for part in PARTS],
    *[(ALL_IN_ONE.format(part), {"a": "3", "b": "3", "c": "axbdc"}, "TRUE") for part in PARTS],
    ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, "TRUE"),
    ("a between up and low", {"a": "3.14"}, "NULL"),
    ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}, "ERROR"),
    ("key is not null and key between 0 and 100", {"key": "con"}, "ERROR"),
    ("a between 0 and 100", {"a": "abc"}, "ERROR"),
    ("a=b", {"a": "3.14", "b": "3.14"}, "TRUE"),
    ("a<>b", {"a": "3.14", "b": "3.14"}, "FALSE"),
    ("a<>b", {"a": "3.14", "b": "3.141"}, "TRUE"),
    ("a > 3.1E10", {"a": "3.1415E10"}, "TRUE"),
    ("a > 3.14", {"a": "3.1415"}, "TRUE"),
    ("a > b", {"a": "10", "b": "20"}, "FALSE"),
    ("a > b", {"a": "20", "b": "10"}, "TRUE"),
    ("a is null OR a='hello'", {}, "TRUE"),
    ("a is null OR a='hello'", {"a": "hello"}, "TRUE"),
    ("a is null OR a='hello'", {"a": "abc"}, "FALSE"),
    ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, "TRUE"),
    ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, "FALSE"),
    ("a is not null and a='hello'", {"a": "hello"}, "TRUE"),
    ("a is not null and a='hello'", {}, "FALSE"),
    (AND, {"a": "3", "b": "5", "c": "6", "d": "1"}, "TRUE"),
    (AND, {"a": "4", "b": "5", "c": "6", "d": "1"}, "FALSE"),
    (OR, {"a": "3"}, "TRUE"),
    (OR, {"a": "4", "b": "5"}, "TRUE"),
    (OR, {"a": "4", "b": "4", "c": "6"}, "TRUE"),
    (OR, {"a": "4", "b": "4", "c": "3", "d": "2"}, "TRUE"),
    (OR, {"a": "4", "b": "4", "c": "3", "d": "10"}, "FALSE"),
    *[("a in ('3', '4', '5')", {"a": value}, "TRUE") for value in "345"],
    ("a in ('3', '4', '5')", {"a": "8"}, "FALSE"),
    *[("a not in ('3', '4', '5')", {"a": value}, "FALSE") for value in "345"],
    ("a not in ('3', '4', '5')", {"a": "8"}, "TRUE"),
    *[("a between 2 and 10", {"a": value}, "TRUE") for value in ("2", "10", "3")],
    *[("a between 2 and 10", {"a": value}, "FALSE") for value in ("1", "11")],
    *[("a not between 2 and 10", {"a": value}, "TRUE") for value in ("1", "11")],
    *[("a not between 2 and 10", {"a": value}, "FALSE") for value in ("2", "10", "3")],
    ("a is null", {"abc": "2"}, "TRUE"),
    ("a is null", {"a": "2"}, "FALSE"),
    ("a is not null", {"a": "2"}, "TRUE"),
    ("a is not null", {"abc": "2"}, "FALSE"),
]
# Of `ParserTest`.
PARSER_TEST: list[tuple[str, dict[str, str], str]] = [
    ("(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))", {}, "NULL"),
    ("(a between 2 and 10) AND (b not between 6 and 9)", {}, "NULL"),
    ("a <= now", {"a": "1"}, "NULL"),
    ("a=3 and b contains 'xxx' and c not contains 'xxx'", {}, "FALSE"),
    ("a=3  and    b<>4 And c>5 AND d<=4", {"a": "3", "b": "5", "c": "6", "d": "1"}, "TRUE"),
    ("a and between 2 and 10", {}, "REFUSED"),
    (" a between 10 and 0", {}, "REFUSED"),
    ("a > 100000000000000000000000", {}, "REFUSED"),
    (f"a > {'1' * 400}.{'1' * 400}", {}, "REFUSED"),
]
# What one would not expect.
PECULIAR: list[tuple[str, dict[str, str], str]] = [
    ("a = 5 and more", {"a": "5"}, "NULL"),
    ("a = 5 whatever ; comes", {"a": "5"}, "TRUE"),  # there is no end to the grammar
    ("a = 5 ;", {"a": "5"}, "REFUSED"),
    ("a = 5 -- no newline", {"a": "5"}, "TRUE"),
    ("a = 007", {"a": "0"}, "TRUE"),
    ("5 = a", {}, "FALSE"),
    ("a = 5", {}, "NULL"),
    ("a = b", {}, "TRUE"),
    ("TRUE = a", {"a": "true"}, "ERROR"),
    ("a > 1 = TRUE", {"a": "2"}, "TRUE"),
    ("a.b = 1", {}, "REFUSED"),
    ("a < 0.0", {}, "REFUSED"),
    ("a > 2.5", {"a": "NaN"}, "TRUE"),
    ("a = 5", {"a": "5.0"}, "ERROR"),
    ("a = 5.0", {"a": " 5 "}, "TRUE"),
    ("a or b = 1", {"a": "true", "b": "1"}, "TRUE"),
    ("a or b = 1", {"a": "true"}, "NULL"),
]
FACTS = [*EXPRESSION_TEST, *PARSER_TEST, *PECULIAR]


def case_of(expression: str, properties: dict[str, str]) -> Case:
    return Case(expression, "".join(f"{name}\x01{value}\x02" for name, value in properties.items()))


@pytest.mark.parametrize(("expression", "properties", "verdict"), FACTS)
def test_verdict_is_rocketmqs(expression: str, properties: dict[str, str], verdict: str) -> None:
    assert our_verdict(case_of(expression, properties)) == verdict


def test_random_filters_get_rocketmqs_verdicts() -> None:
    lines = [json.loads(line) for line in TARGET.read_text().splitlines()]
    assert len(lines) == 2000
    wrong = [line for line in lines if our_verdict(Case(line[0], line[1])) != line[2]]
    assert not wrong
