"""Text of a token that nobody has verified yet.  Pure.

Source: RFC 7515 (JWS compact serialization), RFC 7519.  Only `alg`, `kid` and `typ` of a header are read.  A token
never says where its key is: `jku`, `x5u`, `jwk` and `x5c` are ignored.
"""

import base64
import binascii
import re
from typing import Final

import msgspec

# A JSON object in base64url begins with these characters.
_BEGIN: Final = "eyJ"
# Clients repeat a token in every request.  Checked before anything of it is decoded.
MAX_TOKEN_CHARS: Final = 8192
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_MAX_KEY_ID_CHARS: Final = 256
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
# What stands for a token in logs and in texts of refusals.
_MASK: Final = "(a token)"


class TokenUnreadable(Exception):
    """The text is no token of the accepted form."""


class TokenHeader(msgspec.Struct, frozen=True):
    """Header of a token.  Nothing in it is proved yet."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: object = None
    b64: object = None


class _Issuer(msgspec.Struct, frozen=True):
    iss: str | None = None


def is_token(text: str | None) -> bool:
    """Return whether an access key is meant as a token."""
    return text is not None and text.startswith(_BEGIN) and "." in text


def masked(access_key: str) -> str:
    """Return an access key as logs and refusals may show it."""
    return _MASK if is_token(access_key) else access_key


def unverified(text: str) -> tuple[TokenHeader, str | None]:
    """Return the header of a token and the issuer that it names.  Raises TokenUnreadable."""
    if len(text) > MAX_TOKEN_CHARS:
        raise TokenUnreadable(f"it has {len(text)} characters, at most {MAX_TOKEN_CHARS}")
    if _COMPACT.fullmatch(text) is None:
        raise TokenUnreadable("it does not have three parts in base64url")
    written, payload, _ = text.split(".")
    try:
        header = msgspec.json.decode(decoded(written), type=TokenHeader)
        issuer = msgspec.json.decode(decoded(payload), type=_Issuer).iss
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenUnreadable("its header or its claims are not the JSON of a token") from None
    if header.crit is not None or header.b64 is not None:
        raise TokenUnreadable("its header demands extensions (crit, b64), which are not supported")
    if header.typ is not None and header.typ.lower() not in _TYPES:
        raise TokenUnreadable("its type is not JWT")
    if header.kid is not None and len(header.kid) > _MAX_KEY_ID_CHARS:
        raise TokenUnreadable(f"its kid has {len(header.kid)} characters, at most {_MAX_KEY_ID_CHARS}")
    return header, issuer


def decoded(part: str) -> bytes:
    """Return the bytes of base64url without padding.  Raises TokenUnreadable."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise TokenUnreadable("a part is not base64url") from None
