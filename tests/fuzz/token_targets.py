"""Tokens and keys that strangers write: texts, claims with a right signature, and key sets of issuers."""

import base64
import hashlib
import hmac
import json
from contextlib import suppress
from typing import Final

from acl.tokens.claims import Expected, verified
from acl.tokens.settings import TokenSettings
from acl.tokens.token_text import MAX_TOKEN_CHARS, TokenUnreadable, unverified
from acl.tokens.verification_keys import ALGORITHMS, HS256, MAX_KEYS, public_keys, secret_keys
from sprocket.common.errors import ConfigError, RequestError
from tests.acl.tokens.makers import key, raw_token, token
from tests.fuzz.target import Target

_NOW_S: Final = 1_700_000_000
_SECRET: Final = bytes(range(32))
_KEYS: Final = secret_keys(_SECRET.hex().encode(), "a test")
_JWKS: Final = [json.dumps({"keys": [dict(key(name))]}).encode() for name in ALGORITHMS]


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _signed(header: bytes, claims: bytes) -> str:
    said = f"{_part(header)}.{_part(claims)}"
    return f"{said}.{_part(hmac.new(_SECRET.hex().encode(), said.encode(), hashlib.sha256).digest())}"


def token_text(data: bytes) -> None:
    """Read a text that should be a token.  Nothing that was not signed is ever verified."""
    text = data.decode("utf-8", "surrogateescape")
    with suppress(TokenUnreadable):
        header, _ = unverified(text)
        assert len(text) <= MAX_TOKEN_CHARS
        assert header.crit is None and header.b64 is None
        assert not any(one.verifies(text) for one in _KEYS)


def token_header(data: bytes) -> None:
    """Read a token whose header is `data`: only the algorithm of the key makes it right, whatever the header names."""
    text = _signed(data, b'{"sub":"alice"}')
    with suppress(TokenUnreadable):
        header, _ = unverified(text)
        assert header.alg == HS256 or not any(one.verifies(text) for one in _KEYS)


def token_claims(data: bytes) -> None:
    """Judge claims with a right signature: they are refused, or say what a user may be called and when it ends."""
    text = _signed(b'{"alg":"HS256"}', data)
    with suppress(RequestError):
        found = verified(text, Expected("", frozenset()), TokenSettings(), _NOW_S)
        assert found.user.strip() and found.user.isprintable() and all(found.roles)
        assert found.expires_at_s is not None and abs(found.expires_at_s) < float("inf")


def key_set(data: bytes) -> None:
    """Read keys that an issuer publishes: none of them signs, and a public key is no secret."""
    for read in (public_keys, secret_keys):
        with suppress(ConfigError):
            keys = read(data, "a test")
            assert 0 < len(keys) <= MAX_KEYS
            assert all((one.algorithm == HS256) == (read is secret_keys) for one in keys)


_CLAIMS: Final = (
    b'{"sub":"alice","exp":1700000600,"roles":["a","b"],"aud":"x","iss":"y","jti":"1"}',
    b'{"sub":"alice","exp":1e999,"nbf":null,"iat":true}', b'{"sub":{"sub":{}},"exp":99999999999}',
    b'{"sub":"a","exp":2000000000,"roles":"a b c"}', b'{"sub":"a","exp":2000000000,"aud":[[["x"]]]}',
    b'{"sub":' + b"[" * 5000 + b"]" * 5000 + b"}",
)  # fmt: skip
_HEADERS: Final = (
    b'{"alg":"HS256","kid":"../../etc/passwd"}', b'{"alg":"none"}', b'{"alg":"HS512"}', b'{"alg":"RS256"}',
    b'{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"},"jku":"http://127.0.0.1/"}', b'{"alg":"HS256","crit":["exp"]}',
    b'{"alg":"HS256","alg":"none"}', b'{"alg":["HS256"]}', b'{"alg":"HS256","kid":"\\u0000"}',
)  # fmt: skip
_HUGE: Final = json.dumps({"kty": "RSA", "n": "_" * 100_000, "e": "AQAB"}).encode()

TOKEN_TARGETS: Final = [
    Target(
        "token_text", token_text,
        [token(key(name), _NOW_S).encode() for name in ALGORITHMS]
        + [raw_token(key("ES256"), {"sub": "a"}, crit=["x"]).encode(), b"eyJ" + b"." * 9000, b"eyJh.eyJh.eyJh"],
        10_000,
    ),
    Target("token_header", token_header, [*_HEADERS], 4000),
    Target("token_claims", token_claims, [*_CLAIMS], 8000),
    Target(
        "key_set", key_set,
        [
            *_JWKS, b'{"keys":[]}', b'{"keys":' + b"[" * 5000, b'{"kty":"oct","k":"' + b"A" * 44 + b'"}', _HUGE,
            b'{"keys":[' + b",".join([b'{"kty":"OKP"}'] * 200) + b"]}",
        ],
        200_000,
    ),
]  # fmt: skip
