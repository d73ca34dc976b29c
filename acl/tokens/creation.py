"""New keys and new tokens, for `sprocket token` and for tests.  A server makes none of either.

Source: RFC 7517 (JWK), RFC 7519 (claims).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acl.tokens.verification_keys import ALGORITHMS, EDDSA, ES256, HS256, MIN_SECRET_BYTES, RS256, library
from sprocket.common.errors import ConfigError

Jwk = Mapping[str, Any]
_RSA_BITS: Final = 3072
_RSA_EXPONENT: Final = 65537
# Members of a JWK that are not secret.
_PUBLIC: Final = frozenset({"kty", "kid", "alg", "use", "key_ops", "crv", "x", "y", "n", "e"})


@dataclass(frozen=True)
class Claims:
    """What a new token says.  Times are s since the epoch; `expires_at_s` is None for a token that never expires."""

    user: str
    token_id: str
    issued_at_s: int
    expires_at_s: int | None
    roles: Sequence[str] = ()
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    role_claim: str = "roles"


def new_key(algorithm: str, key_id: str, random_bytes: Callable[[int], bytes]) -> Jwk:
    """Return a new key that signs tokens, as a JWK: a secret, or a private key."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    algorithms = library().algorithms
    made: dict[str, Any]
    if algorithm == HS256:
        made = algorithms.HMACAlgorithm.to_jwk(random_bytes(MIN_SECRET_BYTES), as_dict=True)
    elif algorithm == RS256:
        made = algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(_RSA_EXPONENT, _RSA_BITS), as_dict=True)
    elif algorithm == ES256:
        made = algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)
    elif algorithm == EDDSA:
        made = algorithms.OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate(), as_dict=True)
    else:
        raise ConfigError(f"{algorithm!r}: allowed is {', '.join(ALGORITHMS)}")
    made.pop("key_ops", None)
    return {**made, "kid": key_id, "alg": algorithm, "use": "sig"}


def public_part(key: Jwk) -> Jwk:
    """Return the part of a private key that servers get."""
    return {name: value for name, value in key.items() if name in _PUBLIC}


def new_token(key: Jwk, claims: Claims) -> str:
    """Return a token that `key` signs.  Raises ConfigError for a key that cannot sign."""
    jwt = library()
    try:
        signing = jwt.PyJWK(dict(key))
        said = {
            claims.user_claim: claims.user, claims.role_claim: list(claims.roles) or None,
            "iss": claims.issuer or None, "aud": claims.audience or None,
            "jti": claims.token_id, "iat": claims.issued_at_s, "exp": claims.expires_at_s,
        }  # fmt: skip
        headers = {"kid": key["kid"]} if key.get("kid") else None
        present = {name: value for name, value in said.items() if value is not None}
        return str(jwt.encode(present, signing.key, algorithm=signing.algorithm_name, headers=headers))
    except Exception as error:
        # The text of a library may quote the key.
        raise ConfigError(f"the key cannot sign a token: {type(error).__name__}") from None
