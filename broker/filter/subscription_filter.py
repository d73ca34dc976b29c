"""Filter by tags: a consumer's subscription as a filter over the tags codes of a ConsumeQueue.

Source: RocketMQ 5.3.3, `FilterAPI`, `ExpressionMessageFilter`, `SubscriptionData`.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from broker.filter.tokens import InvalidFilter
from sprocket.common.limits import MAX_SUBSCRIPTION_TAGS
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_code

ALL: Final = "*"
TAG: Final = "TAG"
# A kernel searches for up to so many tags.
MAX_TAG_CODES: Final = 16
_FEW: Final = 4
# For up to so many messages a search in the set of codes is faster than numpy.
_MAX_SEARCHED: Final = 64
# Max size of a cached filter, to limit memory; a longer one is parsed with every request.
_MAX_CACHED_CHARS: Final = 4096
_MAX_CACHED_CODES: Final = 256


class TagFilter:
    """Filter that matches messages whose tag's hash is one of `codes`; different tags may have the same hash."""

    __slots__ = ("_few", "_sorted", "codes")

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)
        self._sorted = np.array(sorted(self.codes), dtype=np.int32)
        self._few = sorted(self.codes) if len(self.codes) <= _FEW else None

    def __call__(self, tags_codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of `tags_codes` match.  Only their low 32 bits count, as in `Long.intValue`."""
        codes = tags_codes.astype(np.int32)
        if not self._few:
            return np.isin(codes, self._sorted)
        found: npt.NDArray[np.bool_] = codes == self._few[0]
        for code in self._few[1:]:
            found |= codes == code
        return found

    def matches_any(self, tags_codes: npt.NDArray[np.int64]) -> bool:
        """Whether any of `tags_codes` matches.  Mostly they are few: those of one arrival, but that may be a batch."""
        if len(tags_codes) > _MAX_SEARCHED:
            return bool(self(tags_codes).any())
        return not self.codes.isdisjoint(tags_codes.astype(np.int32).tolist())


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression of this type is a list of tags, not SQL92."""
    return not expression_type or expression_type == TAG


def tag_filter(expression: str | None) -> TagFilter | None:
    """Return the filter for ``TagA || TagB``; None, which matches everything, for ``*`` and for no expression.

    An expression of separators alone matches nothing.  Raises InvalidFilter for too many tags.
    """
    if not expression or expression == ALL:
        return None
    # Separators are counted, because to find the distinct tags of a long expression would hold the loop.
    if expression.count("||") >= MAX_SUBSCRIPTION_TAGS:
        raise InvalidFilter(f"more than {MAX_SUBSCRIPTION_TAGS} tags, where empty and repeated ones count: send fewer")
    return _known_tag_filter(expression) if len(expression) <= _MAX_CACHED_CHARS else _tag_filter(expression)


def _tag_filter(expression: str) -> TagFilter:
    tags = (tag.strip() for tag in expression.split("||"))
    return TagFilter(java_hash_code(tag) for tag in tags if tag)


_known_tag_filter = lru_cache(maxsize=1024)(_tag_filter)


def _code_filter(codes: tuple[int, ...]) -> TagFilter:
    return _known_code_filter(codes) if len(codes) <= _MAX_CACHED_CODES else TagFilter(codes)


_known_code_filter: Callable[[tuple[int, ...]], TagFilter] = lru_cache(maxsize=1024)(TagFilter)


def subscription_filter(subscription: SubscriptionData) -> TagFilter | None:
    """Return the filter of a tag subscription from a heartbeat; its hash codes decide."""
    if subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    return _code_filter(tuple(subscription.code_set or ()))
