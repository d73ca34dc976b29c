"""Keys, tokens and verifiers for tests."""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import jwt

from acl.tokens.creation import Claims, Jwk, new_key, new_token, public_part
from acl.tokens.revocations import Revocations
from acl.tokens.settings import TokenSettings
from acl.tokens.tokens import Tokens, tokens_of
from tests.clock import ManualClock

ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")


@lru_cache
def key(algorithm: str, name: str = "first") -> Jwk:
    return new_key(algorithm, f"{algorithm}-{name}", os.urandom)


def key_files(folder: Path, *keys: Jwk) -> dict[str, str]:
    """Write key files, and return the settings that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = [dict(one) for one in keys if one["kty"] == "oct"]
    public = [dict(public_part(one)) for one in keys if one["kty"] != "oct"]
    found = {}
    for setting, name, listed in (
        ("token_secret_key", "secret.json", secret), ("token_public_key", "public.json", public),
    ):  # fmt: skip
        if listed:
            (folder / name).write_text(json.dumps({"keys": listed}))
            found[setting] = str(folder / name)
    return found


def token(
    signer: Jwk, now_s: float, user: str = "alice", *, life_s: float | None = 600, token_id: str = "t1", **more: Any
) -> str:
    expires_at_s = None if life_s is None else int(now_s + life_s)
    return new_token(signer, Claims(user, token_id, int(now_s), expires_at_s, **more))


def raw_token(signer: Jwk, claims: dict[str, Any], **header: Any) -> str:
    """A token with any claims and header."""
    signing = jwt.PyJWK(dict(signer))
    return jwt.encode(claims, signing.key, algorithm=signing.algorithm_name, headers={"kid": signer["kid"], **header})


def verifier(
    folder: Path, *keys: Jwk, clock: ManualClock | None = None, revoked: Any = Revocations, **settings: Any
) -> Tokens:
    made = tokens_of(TokenSettings(**key_files(folder, *keys), **settings), clock or ManualClock(), revoked)
    assert made is not None
    return made
