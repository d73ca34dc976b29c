"""Tokens of forms, against cross-site request forgery.  Pure.

A token is an HMAC over the id in the visitor's cookie.  Another site can send the cookie, but cannot read the token.
"""

import hashlib
import hmac


def token_of(key: bytes, cookie_id: str) -> str:
    """Return the token of forms for the visitor with this cookie."""
    return hmac.new(key, f"form:{cookie_id}".encode(), hashlib.sha256).hexdigest()


def is_token(key: bytes, cookie_id: str, given: str) -> bool:
    """Return whether `given` is the token of the visitor with this cookie, in constant time."""
    return hmac.compare_digest(token_of(key, cookie_id).encode(), given.encode("utf-8", "replace"))
