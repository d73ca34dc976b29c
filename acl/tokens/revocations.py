"""Revoked tokens: single ones by their id (jti), or all that a user got before a time.  Immutable, pure.

An entry is dropped when no token that it concerns can be valid any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from acl.tokens.verified_token import VerifiedToken

MAX_REVOCATIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Revocation:
    """Either `token_id`, or all tokens of `user` that were issued at or before `before_s`.

    `until_s` is when the entry is needed no longer; None: for ever.  Times are seconds since the epoch.
    """

    token_id: str | None = None
    user: str | None = None
    before_s: float = 0.0
    until_s: float | None = None

    @property
    def key(self) -> str:
        """The name of the entry among all others."""
        return f"jti:{self.token_id}" if self.token_id is not None else f"sub:{self.user}"


@dataclass(frozen=True, slots=True)
class Revocations:
    """All revocations by their keys."""

    entries: Mapping[str, Revocation] = field(default_factory=lambda: MappingProxyType({}))

    def cover(self, token: VerifiedToken) -> bool:
        """Return whether `token` is revoked.  One without a time of issue was issued before any time."""
        if not self.entries:
            return False
        if token.token_id is not None and f"jti:{token.token_id}" in self.entries:
            return True
        all_of_user = self.entries.get(f"sub:{token.user}")
        return all_of_user is not None and (token.issued_at_s is None or token.issued_at_s <= all_of_user.before_s)

    def with_entry(self, one: Revocation, now_s: float) -> "Revocations":
        """Return a copy with `one`, without those that are needed no longer.  A later time of a user stays.

        Raises ValueError if there are too many.
        """
        kept = {key: old for key, old in self.entries.items() if old.until_s is None or old.until_s > now_s}
        old = kept.get(one.key)
        if old is not None:
            one = replace(one, before_s=max(one.before_s, old.before_s), until_s=_later(one.until_s, old.until_s))
        kept[one.key] = one
        if len(kept) > MAX_REVOCATIONS:
            raise ValueError(f"{len(kept)} entries, at most {MAX_REVOCATIONS}: revoke all tokens of a user, or a key")
        return Revocations(MappingProxyType(kept))


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)
