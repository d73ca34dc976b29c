"""Signature of a request: HMAC-SHA1 over the values of its header fields, ordered by name, and its body.

Source: RocketMQ 5.3.3, `AclClientRPCHook`, `AclUtils.combineRequestContent`, `AclSigner`, `SessionCredentials`.
"""

import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Final

from sprocket.remoting.command import Buffer

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
# Fields that `Credentials.signed` adds.
SIGNED_WITH: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})
# A field that clients up to 4.9.3 add after signing.  Source: `MixAll.UNIQUE_MSG_QUERY_FLAG`, `MQVersion`.
_LATE_FIELD: Final = "_UNIQUE_KEY_QUERY"
_V4_9_3: Final = 399
# Of SHA-1.
_BLOCK_BYTES: Final = 64


def signature(secret_key: str, fields: Mapping[str, str], body: Buffer, version: int = _V4_9_3 + 1) -> str:
    """Return the field Signature of a request with `fields` and `body`, from a client of `version`."""
    values = _signed_values(tuple(fields), version <= _V4_9_3)(fields)
    # `TreeMap` orders by UTF-16 units, `sorted` by code points; names of fields are ASCII.
    content = "".join(values).encode()
    begun_inner, begun_outer = _keyed(secret_key)
    inner = begun_inner.copy()
    inner.update(content)
    if body:
        inner.update(body)
    outer = begun_outer.copy()
    outer.update(inner.digest())
    return binascii.b2a_base64(outer.digest(), newline=False).decode()


@lru_cache(maxsize=64)
def _signed_values(names: tuple[str, ...], leaves_out_late: bool) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Return a function that gets the signed values of fields with these names, which a client repeats."""
    left_out = (SIGNATURE, _LATE_FIELD) if leaves_out_late else (SIGNATURE,)
    signed = sorted(name for name in names if name not in left_out)
    if len(signed) < 2:  # `itemgetter` would return no tuple
        return lambda fields: [fields[name] for name in signed]
    return itemgetter(*signed)


@lru_cache(maxsize=1024)
def _keyed(secret_key: str) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    """Return the two digests that begin every HMAC with this key (RFC 2104): twice as fast as `hmac`."""
    key = secret_key.encode()
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha1(key).digest()
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (bytes(one ^ pad for one in padded) for pad in (0x36, 0x5C))
    return hashlib.sha1(inner), hashlib.sha1(outer)


@dataclass(frozen=True)
class Credentials:
    """An account and its secret key, which `repr` hides."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signed(self, fields: Mapping[str, str], body: Buffer) -> dict[str, str]:
        """Return `fields` with account and signature."""
        named = {**fields, ACCESS_KEY: self.access_key}
        if self.security_token:
            named[SECURITY_TOKEN] = self.security_token
        named[SIGNATURE] = signature(self.secret_key, named, body)
        return named


class TokenCredentials(Credentials):
    """A token (JWT) in place of an account: `token`, or a function that returns the present one.

    The function is called for each request, so it returns at once; a task of the application renews what it returns.
    Nothing shows the token.  Source: RocketMQ on Pulsar, where the access key is the token and the secret is ignored.
    """

    # Two of them are equal only if they are the same: no comparison may read a token.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, token: str | Callable[[], str]) -> None:
        super().__init__("(a token)", "")
        present = token if callable(token) else lambda: token
        object.__setattr__(self, "_present", present)

    @property
    def token(self) -> str:
        """The present token."""
        present: Callable[[], str] = self.__dict__["_present"]
        return present()

    def signed(self, fields: Mapping[str, str], body: Buffer) -> dict[str, str]:
        """Return `fields` with the token.  Servers ignore the signature, but RocketMQ's clients always send one."""
        return {**fields, ACCESS_KEY: self.token, SIGNATURE: "token"}
