"""Settings of a server about tokens.

Source of names: Apache Pulsar, `AuthenticationProviderToken`, `AuthenticationProviderOpenID`, which RocketMQ on Pulsar
uses.  Two defaults are shorter here, so that a new key of an issuer is accepted sooner: Pulsar's are 64800 and 300 s.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting
from sprocket.common.errors import ConfigError

_FILE: Final = "file"


@dataclass(frozen=True)
class TokenSettings:
    """Part of a server's configuration that is about tokens."""

    token_secret_key: str = text_setting(
        "",
        "File with secrets that sign tokens (HS256): a JWK set, a JWK, or the 32 bytes or more of one secret.  "
        "Everyone who can read it can make tokens.",
    )
    token_public_key: str = text_setting(
        "", "File with public keys that verify tokens (RS256, ES256, EdDSA): a JWK set, a JWK, or PEM."
    )
    token_issuer: str = text_setting("", "The iss that tokens of the keys in files must have; empty: any, or none.")
    token_audience: str = text_setting(
        "", "One of these, with commas, must be in the aud of tokens of the keys in files; empty: any."
    )
    token_auth_claim: str = text_setting("sub", "The claim that names the user.")
    token_role_claim: str = text_setting(
        "roles", "The claim with the user's roles: a list, or a text with blanks between them."
    )
    token_expiry_required: bool = bool_setting(True, "Refuse tokens that never expire (without exp).")
    token_super_user_enabled: bool = bool_setting(False, "Let a token that names a super user have that user's rights.")
    token_allowed_clock_skew_seconds: int = int_setting(10, "How much the clock of an issuer may differ.", 0, "s", 300)
    open_id_allowed_token_issuers: str = text_setting(
        "", "URLs of issuers whose tokens are accepted, with commas.", key="openIDAllowedTokenIssuers"
    )
    open_id_jwks_locations: str = text_setting(
        "",
        "Where issuers publish their keys: pairs of an issuer and a URL or file with a blank between, commas "
        "between pairs.  Others are asked for their .well-known/openid-configuration.",
        key="openIDJwksLocations",
    )
    open_id_allowed_audiences: str = text_setting(
        "", "One of these, with commas, must be in the aud of an issuer's tokens.", key="openIDAllowedAudiences"
    )
    open_id_issuer_trust_certs_file_path: str = text_setting(
        "", "Authorities of the issuers' certificates (PEM); empty: the system's.", key="openIDIssuerTrustCertsFilePath"
    )
    open_id_require_issuers_use_https: bool = bool_setting(
        True, "Fetch keys of issuers by HTTPS alone.", key="openIDRequireIssuersUseHttps"
    )
    open_id_http_read_timeout_millis: int = int_setting(
        10_000, "Time for one fetch of an issuer's keys.", 100, "ms", 60_000, key="openIDHttpReadTimeoutMillis"
    )
    open_id_cache_refresh_after_write_seconds: int = int_setting(
        3600, "Age at which keys of an issuer are fetched again.", 10, "s", key="openIDCacheRefreshAfterWriteSeconds"
    )
    open_id_key_id_cache_miss_refresh_seconds: int = int_setting(
        60,
        "Shortest time between two fetches of an issuer's keys, however many tokens name unknown keys.",
        1,
        "s",
        key="openIDKeyIdCacheMissRefreshSeconds",
    )

    @property
    def accepts_tokens(self) -> bool:
        """Whether a token may take the place of a password."""
        return bool(self.token_secret_key.strip() or self.token_public_key.strip() or self.issuers())

    def issuers(self) -> dict[str, str]:
        """Return the location of each issuer's keys, a URL or the path of a file; empty: by discovery.

        Raises ConfigError.
        """
        key = "openIDJwksLocations"
        locations = dict.fromkeys(_listed(self.open_id_allowed_token_issuers), "")
        for pair in _listed(self.open_id_jwks_locations):
            issuer, blank, location = pair.partition(" ")
            if not blank or issuer not in locations:
                raise ConfigError(
                    f"{key}: {pair!r}: write an issuer of openIDAllowedTokenIssuers, a blank, and a URL or a file"
                )
            locations[issuer] = location.strip()
        return locations

    def audiences(self, *, of_issuer: bool) -> frozenset[str]:
        """Return the audiences; a token must name one of them.  Without any, the audience of a token is not checked."""
        return frozenset(_listed(self.open_id_allowed_audiences if of_issuer else self.token_audience))

    def check_tokens(self) -> None:
        """Raise ConfigError for settings that do not fit together."""
        issuers = self.issuers()
        if issuers and not self.audiences(of_issuer=True):
            raise ConfigError(
                "openIDAllowedTokenIssuers: set openIDAllowedAudiences, or tokens for other services are accepted too"
            )
        for issuer, location in issuers.items():
            self._check_address(location or issuer, is_issuer=not location)
        if not self.token_auth_claim.strip() or not self.token_role_claim.strip():
            raise ConfigError("tokenAuthClaim, tokenRoleClaim: neither may be blank")

    def _check_address(self, address: str, *, is_issuer: bool) -> None:
        scheme = urlsplit(address).scheme
        allowed = ["https"] if self.open_id_require_issuers_use_https else ["https", "http"]
        if scheme not in allowed and (is_issuer or scheme not in ("", _FILE)):
            raise ConfigError(f"openIDAllowedTokenIssuers: {address!r}: allowed is {' or '.join(allowed)}")


def path_of(location: str) -> Path | None:
    """Return the path of a file, written as ``/path`` or ``file:///path``; None for another URL."""
    parts = urlsplit(location)
    if parts.scheme == _FILE:
        return Path(parts.path)
    return None if parts.scheme else Path(location)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
