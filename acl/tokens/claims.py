"""Claims of a token whose signature was right: their checks, and what they say.  Pure.

Source: RFC 7519, 4.1.  A claim of a wrong type is refused, never ignored.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from acl.auth.errors import AuthRefused
from acl.tokens.settings import TokenSettings
from acl.tokens.token_text import TokenUnreadable, decoded
from acl.tokens.verified_token import VerifiedToken

_MAX_NAME_CHARS: Final = 256
_MAX_ROLES: Final = 100


@dataclass(frozen=True, slots=True)
class Expected:
    """What tokens of one issuer must say; `issuer` is empty and `audiences` are none if anything may be said."""

    issuer: str
    audiences: frozenset[str]


def verified(text: str, expected: Expected, settings: TokenSettings, now_s: float) -> VerifiedToken:
    """Return what a token with a right signature says at `now_s`, in s since the epoch.  Raises AuthRefused."""
    try:
        claims = msgspec.json.decode(decoded(text.split(".")[1]), type=dict[str, Any])
    except (TokenUnreadable, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AuthRefused("the token's claims are no JSON object") from None
    skew_s = settings.token_allowed_clock_skew_seconds
    issuer = _text(claims, "iss")
    if expected.issuer and issuer != expected.issuer:
        raise AuthRefused(f"the token's issuer is not {expected.issuer}")
    _check_audience(claims, expected.audiences)
    expires_at_s, issued_at_s, not_before_s = (_time(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_at_s is None and settings.token_expiry_required:
        raise AuthRefused("the token never expires, which tokenExpiryRequired forbids")
    if not_before_s is not None and not_before_s > now_s + skew_s:
        raise AuthRefused("the token is not valid yet")
    if issued_at_s is not None and issued_at_s > now_s + skew_s:
        raise AuthRefused("the token was issued in the future: compare the clocks")
    user = _text(claims, settings.token_auth_claim)
    if not user or not _is_name(user):
        raise AuthRefused(f"the token's claim {settings.token_auth_claim} names no user")
    return VerifiedToken(
        user, _roles(_claim(claims, settings.token_role_claim), settings.token_role_claim), _text(claims, "jti"),
        issuer, issued_at_s, None if expires_at_s is None else expires_at_s + skew_s, text,
    )  # fmt: skip


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; ``realm_access.roles`` is the member of another one, unless there is a claim of that name."""
    if name in claims or "." not in name:
        return claims.get(name)
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = _claim(claims, name)
    if value is not None and not isinstance(value, str):
        raise AuthRefused(f"the token's claim {name} is no text")
    return value


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    # A boolean is a number in Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AuthRefused(f"the token's claim {name} is no time")
    return float(value)


def _check_audience(claims: Mapping[str, Any], allowed: frozenset[str]) -> None:
    if not allowed:
        return
    value = claims.get("aud")
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not any(isinstance(one, str) and one in allowed for one in named):
        raise AuthRefused("the token is for another audience")


def _roles(value: Any, name: str) -> tuple[str, ...]:
    listed = value.split() if isinstance(value, str) else value
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(one, str) and _is_name(one) for one in listed):
        raise AuthRefused(f"the token's claim {name} lists no names of roles")
    if len(listed) > _MAX_ROLES:
        raise AuthRefused(f"the token has {len(listed)} roles, at most {_MAX_ROLES}")
    return tuple(sorted(set(listed)))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME_CHARS and text.isprintable() and bool(text.strip())
