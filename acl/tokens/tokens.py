"""Tokens of one server: verified once, then known by their digest until they end.

A token costs a verification when it is first seen, and a digest afterwards.  With the compiled engine a connection has
a pass for its token, which costs a comparison.  A token that was refused is known, too: a flood of one token costs a
digest each, and a flood of different ones is a flood of wrong signatures, which the gate limits for each address.
"""

import hashlib
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NoReturn

from acl.access_request import FailedAttempt
from acl.auth.errors import AuthRefused
from acl.tokens.claims import Expected, verified
from acl.tokens.key_sources import KeySources
from acl.tokens.revocations import Revocations
from acl.tokens.settings import TokenSettings
from acl.tokens.token_text import TokenUnreadable, is_token, masked, unverified
from acl.tokens.verified_token import VerifiedToken
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

# How often `Tokens.look` is called.
LOOK_S: Final = 0.5
MAX_VERIFIED: Final = 16_384
MAX_REFUSED: Final = 16_384
# Tokens that one look verifies again after a change of keys.
_MAX_CHECKED: Final = 32
# Keys that are tried for one token: several without an id may have the same algorithm.
_MAX_TRIED: Final = 8
# The last part of a token's life; of one that does not say when it began, this is the life.
_LAST_PART: Final = 0.1
_UNKNOWN_LIFE_S: Final = 36_000.0


def _end(token: VerifiedToken, cause: str) -> None:
    token.revision.rise()
    bearers = list(token.bearers)
    token.bearers.clear()
    for bearer in bearers:
        bearer.close()
    if bearers:
        peer_lines.info(
            logger, token.user, "event=token_ended user=%s cause=%s connections=%d", token.user, cause, len(bearers)
        )


class NotVerified(FailedAttempt):
    """The token proves no identity."""

    def __init__(self, why: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, why)


def tokens_of(settings: TokenSettings, clock: Clock, revoked: Callable[[], Revocations]) -> "Tokens | None":
    """Return the verifier for `settings`; None if they accept no tokens.  Raises ConfigError."""
    settings.check_tokens()
    return Tokens(settings, KeySources(settings, clock), clock, revoked) if settings.accepts_tokens else None


class Tokens:
    """Verifier of tokens.  It belongs to the event loop's thread.

    `revoked` returns the present revocations.
    """

    def __init__(
        self, settings: TokenSettings, keys: KeySources, clock: Clock, revoked: Callable[[], Revocations]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._revoked = revoked
        self._generation = keys.generation
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        # Ends of those that are known or have bearers, soonest first; the number decides between equal ones.
        self._ends: list[tuple[float, int, VerifiedToken]] = []
        self._count = 0
        self._known_revoked = revoked()
        # Tokens with bearers that were verified with keys of before.
        self._doubtful: list[VerifiedToken] = []
        self._refused: OrderedDict[bytes, tuple[bool, str]] = OrderedDict()

    def verify(self, text: str) -> VerifiedToken:
        """Return what a token says.  Raises NotVerified if nobody trusted has signed it, else AuthRefused."""
        self._drop_if_keys_changed()
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is not None:
            self._verified.move_to_end(digest)
            self.demand(known)
            return known
        refused = self._refused.get(digest)
        if refused is not None:
            is_attempt, why = refused
            raise NotVerified(why) if is_attempt else AuthRefused(why)
        token = self._checked(text, digest)
        self._remember(digest, token)
        return token

    def demand(self, token: VerifiedToken) -> None:
        """Raise AuthRefused if a token that was verified has ended meanwhile."""
        if token.expires_at_s is not None and token.expires_at_s <= self._now_s():
            raise AuthRefused(f"the token of User:{token.user} has expired; present a new one")
        if self._revoked().cover(token):
            raise AuthRefused(f"the token of User:{token.user} is revoked; present a new one")

    def shown(self, access_key: str) -> tuple[str, str]:
        """Return an access key as an audit line may show it: the user, and the id of its token."""
        if not is_token(access_key):
            return access_key, ""
        known = self._verified.get(hashlib.sha256(access_key.encode("utf-8", "surrogatepass")).digest())
        return (masked(access_key), "") if known is None else (known.user, known.token_id or "")

    def look(self) -> None:
        """End what has expired or was revoked, with its bearers; look for new keys.  Called at least once a second."""
        now_s = self._now_s()
        while self._ends and self._ends[0][0] <= now_s:
            # It stays known, so that its bearer is told why it is refused.
            _end(heapq.heappop(self._ends)[2], "expired")
        revoked = self._revoked()
        if revoked is not self._known_revoked:
            self._known_revoked = revoked
            for token in [*self._verified.values(), *(end[2] for end in self._ends)]:
                if revoked.cover(token):
                    _end(token, "revoked")
        self._keys.look()
        self._drop_if_keys_changed()
        doubtful, self._doubtful = self._doubtful[:_MAX_CHECKED], self._doubtful[_MAX_CHECKED:]
        for token in doubtful:
            try:
                self.verify(token.text).bearers.update(token.bearers)
            except RequestError:
                _end(token, "key_withdrawn")

    def not_renewed(self) -> list[tuple[VerifiedToken, float]]:
        """Return the tokens of open connections that have less than a tenth of their life left, and the s left.

        A client that renews its tokens has presented the next one by then.
        """
        now_s, found = self._now_s(), []
        for token in self._verified.values():
            if token.expires_at_s is not None and token.bearers:
                left_s = token.expires_at_s - now_s
                life_s = _UNKNOWN_LIFE_S if token.issued_at_s is None else token.expires_at_s - token.issued_at_s
                if 0 < left_s < life_s * _LAST_PART:
                    found.append((token, left_s))
        return found

    def key_troubles(self) -> list[str]:
        """Return which sources of keys cannot be read, or have lost keys, with why."""
        return self._keys.troubles()

    async def close(self) -> None:
        """Stop what is being fetched."""
        await self._keys.close()

    def _checked(self, text: str, digest: bytes) -> VerifiedToken:
        try:
            header, issuer = unverified(text)
        except TokenUnreadable as error:
            self._refuse(digest, NotVerified(f"the token cannot be read: {error}"))
        source = issuer if self._keys.is_issuer(issuer) else None
        candidates = self._keys.candidates(source, header.alg, header.kid)[:_MAX_TRIED]
        if not candidates:
            # Not remembered: the key of an issuer may arrive at any time, and this has cost no verification.
            raise NotVerified("the token's key or algorithm is not known")
        if not any(key.verifies(text) for key in candidates):
            self._refuse(digest, NotVerified("no known key has signed the token"))
        is_of_issuer = source is not None
        expected = Expected(source or self._settings.token_issuer, self._settings.audiences(of_issuer=is_of_issuer))
        token = verified(text, expected, self._settings, self._now_s())
        try:
            self.demand(token)
        except AuthRefused as error:
            if token.expires_at_s is not None and token.expires_at_s <= self._now_s():
                self._refuse(digest, error)
            raise
        return token

    def _refuse(self, digest: bytes, error: RequestError) -> NoReturn:
        """Remember a refusal that only new keys can change, and raise it."""
        if len(self._refused) >= MAX_REFUSED:
            self._refused.popitem(last=False)
        self._refused[digest] = isinstance(error, FailedAttempt), error.remark
        raise error from None

    def _remember(self, digest: bytes, token: VerifiedToken) -> None:
        if len(self._verified) >= MAX_VERIFIED:
            # Its pass would outlive it: it is verified again.
            self._verified.popitem(last=False)[1].revision.rise()
        self._verified[digest] = token
        if token.expires_at_s is not None:
            if self._count % (2 * MAX_VERIFIED) == 0:  # many are of tokens that are no longer known
                known = {id(one) for one in self._verified.values()}
                self._ends = [end for end in self._ends if id(end[2]) in known or end[2].bearers]
                heapq.heapify(self._ends)
            heapq.heappush(self._ends, (token.expires_at_s, self._count, token))
            self._count += 1

    def _drop_if_keys_changed(self) -> None:
        """Forget all tokens when any key has changed: the key of some may be withdrawn."""
        if self._generation != self._keys.generation:
            self._generation = self._keys.generation
            for token in self._verified.values():
                token.revision.rise()
            self._doubtful += [token for token in self._verified.values() if token.bearers]
            self._verified.clear()
            self._refused.clear()
            self._ends.clear()

    def _now_s(self) -> float:
        return self._clock.wall_ms() / 1000
