"""Filters by tag."""

import numpy as np
import pytest

from broker.filter.subscription_filter import TagFilter, is_tag_type, subscription_filter, tag_filter
from broker.filter.tokens import InvalidFilter
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_code

# "Aa" and "BB" have one hash in Java.
CODES = np.array([java_hash_code(tag) for tag in ("Aa", "BB", "TagA", "Zürich")] + [0], np.int64)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TagA", [False, False, True, False, False]),
        ("Aa", [True, True, False, False, False]),
        (" TagA ||Zürich|| ", [False, False, True, True, False]),
        ("a||b||c||d||e||TagA", [False, False, True, False, False]),
        ("||", [False, False, False, False, False]),
    ],
)
def test_an_expression_matches_by_hash(expression: str, expected: list[bool]) -> None:
    matches = tag_filter(expression)
    assert matches is not None
    assert matches(CODES).tolist() == expected
    others = np.full(1000, java_hash_code("Other"), np.int64)
    for codes in (CODES, np.concatenate((others, CODES))):
        assert matches.matches_any(codes) == any(expected)
    assert not matches.matches_any(others)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_lets_everything_through(expression: str | None) -> None:
    assert tag_filter(expression) is None


def test_too_many_tags_are_refused() -> None:
    assert tag_filter("a" + "||b" * 999) is not None
    with pytest.raises(InvalidFilter, match=r"^more than 1000 tags"):
        tag_filter("a" + "||b" * 1000)


def test_only_the_low_half_of_a_tags_code_counts() -> None:
    assert TagFilter([-1])(np.array([-1, 0xFFFFFFFF, 0x5_FFFF_FFFF, 1], np.int64)).tolist() == [True, True, True, False]


def test_a_subscription_matches_by_the_codes_it_brought() -> None:
    subscription = SubscriptionData("T", "TagA", tags_set=["TagA"], code_set=[java_hash_code("TagA")])
    matches = subscription_filter(subscription)
    assert matches is not None and matches(CODES).tolist() == [False, False, True, False, False]
    assert subscription_filter(SubscriptionData("T", "*")) is None
    assert subscription_filter(SubscriptionData("T", "TagA", class_filter_mode=True)) is None
    nothing = subscription_filter(SubscriptionData("T", "TagA", code_set=None))
    assert nothing is not None and not nothing.matches_any(CODES)


@pytest.mark.parametrize(("expression_type", "expected"), [(None, True), ("", True), ("TAG", True), ("SQL92", False)])
def test_what_is_a_list_of_tags(expression_type: str | None, expected: bool) -> None:
    assert is_tag_type(expression_type) is expected
