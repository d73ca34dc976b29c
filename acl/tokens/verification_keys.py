"""Keys that verify tokens, and their forms in files and at issuers: JWK sets, JWKs, PEM, bytes of a secret.

The kind of a key decides its algorithm.  A token cannot choose another one: `none` has no key, and a public key is
never used as a secret.  Source: RFC 7517 (JWK), RFC 7518 (algorithms, sizes of keys), RFC 8037 (EdDSA).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sprocket.common.errors import ConfigError
from sprocket.common.extras import missing_package

MAX_KEYS: Final = 100
MAX_FILE_BYTES: Final = 1 << 19
HS256, RS256, ES256, EDDSA = ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
# RFC 7518, 3.2: a key is at least as long as the digest.  3.3: at least 2048 bits.
MIN_SECRET_BYTES: Final = 32
MIN_RSA_BITS: Final = 2048
_ALGORITHM_OF: Final = {"oct": HS256, "RSA": RS256, "EC": ES256, "OKP": EDDSA}
_CURVES: Final = {"EC": "P-256", "OKP": "Ed25519"}


class NoKeys(ConfigError):
    """The content has no keys that can be used here."""


@dataclass(frozen=True, slots=True, eq=False)
class VerificationKey:
    """One key with its only algorithm.  `verifies` checks a token in compact form, whose header names it."""

    key_id: str | None
    algorithm: str
    verifies: Callable[[str], bool] = field(repr=False)


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str | None = None
    crv: str | None = None
    key_ops: list[str] | None = None


class _JwkSet(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


def public_keys(content: bytes, name: str) -> tuple[VerificationKey, ...]:
    """Return the public keys in a JWK set, a JWK or PEM.  Raises NoKeys, also for secrets and private keys."""
    if content.lstrip().startswith(b"{"):
        return _jwk_keys(content, name, (RS256, ES256, EDDSA))
    return (_from_pem(content, name),)


def secret_keys(content: bytes, name: str) -> tuple[VerificationKey, ...]:
    """Return the secrets in a JWK set or a JWK, or the one whose bytes `content` is.  Raises NoKeys."""
    if content.lstrip().startswith(b"{"):
        return _jwk_keys(content, name, (HS256,))
    if content.lstrip().startswith(b"-----BEGIN"):
        raise NoKeys(f"{name}: PEM is no secret: a public key belongs to tokenPublicKey")
    # An editor ends a line that is no part of the secret.
    secret = content.rstrip(b"\r\n") if content.isascii() else content
    return (_secret(secret, None, name),)


def _jwk_keys(content: bytes, name: str, algorithms: Sequence[str]) -> tuple[VerificationKey, ...]:
    """Return the keys for `algorithms`; others in the set, such as those for encryption, are left out."""
    try:
        written = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        listed = msgspec.json.decode(content, type=_JwkSet).keys if "keys" in written else [msgspec.Raw(content)]
        if len(listed) > MAX_KEYS:
            raise NoKeys(f"{name}: {len(listed)} keys, at most {MAX_KEYS}")
        found = [_from_jwk(bytes(one), name, algorithms) for one in listed]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NoKeys(f"{name}: no JWK set and no JWK") from None
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise NoKeys(f"{name}: no key for {', '.join(algorithms)}")
    return keys


def _from_jwk(content: bytes, name: str, algorithms: Sequence[str]) -> VerificationKey | None:
    jwk = msgspec.json.decode(content, type=_Jwk)
    algorithm = _ALGORITHM_OF.get(jwk.kty, "")
    if algorithm not in algorithms or jwk.alg not in (None, algorithm) or jwk.use not in (None, "sig"):
        return None
    if (jwk.key_ops is not None and "verify" not in jwk.key_ops) or _CURVES.get(jwk.kty) != jwk.crv:
        return None
    values: dict[str, Any] = msgspec.json.decode(content)
    if algorithm != HS256 and "d" in values:
        raise NoKeys(f"{name}: the key {jwk.kid!r} is private; give servers its public part alone")
    jwt = library()
    try:
        material: Any = jwt.PyJWK(values, algorithm).key
    except Exception:
        # The library lets errors of other libraries through.  None of them may quote the key.
        raise NoKeys(f"{name}: the key {jwk.kid!r} cannot be read") from None
    return _secret(material, jwk.kid, name) if algorithm == HS256 else _public(material, algorithm, jwk.kid, name)


def _secret(secret: bytes, key_id: str | None, name: str) -> VerificationKey:
    if len(secret) < MIN_SECRET_BYTES:
        raise NoKeys(f"{name}: a secret has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed for {HS256}")
    return _key(key_id, HS256, secret)


def _from_pem(content: bytes, name: str) -> VerificationKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        material = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise NoKeys(f"{name}: no JWK set, no JWK and no public key in PEM") from None
    if isinstance(material, RSAPublicKey):
        return _public(material, RS256, None, name)
    if isinstance(material, EllipticCurvePublicKey) and isinstance(material.curve, SECP256R1):
        return _public(material, ES256, None, name)
    if isinstance(material, Ed25519PublicKey):
        return _public(material, EDDSA, None, name)
    raise NoKeys(f"{name}: allowed are keys of RSA, of the curve P-256, and of Ed25519")


def _public(material: Any, algorithm: str, key_id: str | None, name: str) -> VerificationKey:
    if algorithm == RS256 and material.key_size < MIN_RSA_BITS:
        raise NoKeys(f"{name}: a key of RSA has {material.key_size} bits, at least {MIN_RSA_BITS} are needed")
    return _key(key_id, algorithm, material)


def _key(key_id: str | None, algorithm: str, material: Any) -> VerificationKey:
    jwt = library()
    # It knows this algorithm alone, whatever the header of a token says.
    checker = jwt.PyJWS(algorithms=[algorithm])

    def verifies(text: str) -> bool:
        try:
            checker.decode_complete(text, material, algorithms=[algorithm])
        except jwt.PyJWTError:
            return False
        return True

    return VerificationKey(key_id, algorithm, verifies)


def library() -> Any:
    """Return the package `jwt`: here, because most servers accept no tokens.  Raises ConfigError without it."""
    try:
        import jwt
    except ImportError as error:
        raise ConfigError(missing_package(error, "a token") or str(error)) from None
    return jwt
