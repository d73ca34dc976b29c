"""`sprocket token`: keys that sign tokens, tokens, and the end of tokens.

A token is printed, and never logged.  A key goes into a file that only its owner may read.
"""

import datetime
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from acl.tokens.verification_keys import ALGORITHMS, HS256
from sprocket.common.errors import ConfigError
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import HELP, WrongUsage, json_option, namesrv_option, print_json, with_admin
from sprocket_cli.target import Target, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient

_ID_BYTES: Final = 12
_MAX_KEY_BYTES: Final = 1 << 16
_MODE: Final = 0o600


@click.group(context_settings=HELP)
def token() -> None:
    """Make, show and revoke tokens (JWT), which take the place of a user's password."""


@token.group("keys")
def keys() -> None:
    """Make keys that sign tokens."""


@keys.command("create")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--algorithm", type=click.Choice(ALGORITHMS), default="ES256", show_default=True)
@click.option("--key-id", help="Name of the key in tokens (kid); random without it.")
def create_keys(directory: Path, algorithm: str, key_id: str | None) -> None:
    """Make a key in DIRECTORY: signing.json makes tokens, public.json is for servers (tokenPublicKey).

    For HS256, servers need signing.json itself (tokenSecretKey), and can make tokens with it.
    """
    from acl.tokens.creation import new_key, public_part

    signing, public = directory / "signing.json", directory / "public.json"
    if signing.exists() or public.exists():
        raise WrongUsage(f"{directory}: there is a key already; choose another directory, so that both are known")
    try:
        key = new_key(algorithm, key_id or secrets.token_hex(_ID_BYTES), secrets.token_bytes)
        directory.mkdir(parents=True, exist_ok=True)
        _write(signing, key)
        if algorithm != HS256:
            public.write_text(json.dumps({"keys": [public_part(key)]}) + "\n")
    except OSError as error:
        raise WrongUsage(f"{directory}: {error.strerror}") from None
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    setting = f"tokenSecretKey = {signing}" if algorithm == HS256 else f"tokenPublicKey = {public}"
    click.echo(f"{signing}: the key {key['kid']} ({algorithm}); keep it secret\nServers: {setting}")


def _write(path: Path, key: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(dict(key)) + "\n")


@token.command("create")
@click.argument("user")
@click.option("--key", "key_file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="signing.json.")
@click.option("--hours", type=click.FloatRange(0, 87_600, min_open=True), default=1.0, show_default=True)
@click.option("--role", "roles", multiple=True, help="A role of the user; repeatable.")
@click.option("--issuer", default="", help="The iss of the token, as in tokenIssuer.")
@click.option("--audience", default="", help="The aud of the token, as in tokenAudience.")
@click.option("--user-claim", default="sub", show_default=True, help="As tokenAuthClaim.")
@click.option("--role-claim", default="roles", show_default=True, help="As tokenRoleClaim.")
def create(
    user: str, key_file: Path, hours: float, roles: tuple[str, ...], issuer: str, audience: str, user_claim: str,
    role_claim: str,
) -> None:  # fmt: skip
    """Print a new token for USER."""
    from acl.tokens.creation import Claims, new_token

    now_s = int(time.time())
    claims = Claims(
        user, secrets.token_hex(_ID_BYTES), now_s, now_s + max(1, round(hours * 3600)), roles, issuer, audience,
        user_claim, role_claim,
    )  # fmt: skip
    try:
        click.echo(new_token(_key(key_file), claims))
    except ConfigError as error:
        raise WrongUsage(f"{key_file}: {error}") from None


def _key(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_KEY_BYTES), type=dict[str, Any])
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise WrongUsage(f"{path}: no JWK; sprocket token keys create makes one") from None


@token.command("show")
@click.argument("text", metavar="TOKEN", default="-")
@json_option
def show(text: str, as_json: bool) -> None:
    """Print what TOKEN says, without its signature; - reads it from the standard input.  Nothing is verified."""
    found = _said(text)
    if as_json:
        print_json(found)
        return
    for name, value in {**found["header"], **found["claims"]}.items():
        is_time = name in ("exp", "iat", "nbf") and isinstance(value, int)
        click.echo(f"{name}: {_time(value) if is_time else json.dumps(value)}")
    click.echo("The signature was not verified.")


def _time(seconds: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _said(text: str) -> dict[str, Any]:
    from acl.tokens.token_text import TokenUnreadable, decoded, unverified

    if text == "-":
        text = sys.stdin.readline().strip()
    try:
        unverified(text)
        header, claims = (msgspec.json.decode(decoded(part)) for part in text.split(".")[:2])
    except (TokenUnreadable, msgspec.MsgspecError) as error:
        raise WrongUsage(f"this is no token: {error}") from None
    return {"header": header, "claims": claims}


@token.command("revoke")
@namesrv_option
@target_options()
@click.option("--token", "text", help="The token itself; - reads it from the standard input.")
@click.option("--id", "token_id", help="The id of the token (jti).")
@click.option("--user", help="Revoke all tokens that the user got until now.")
def revoke(namesrv: str | None, target: Target, text: str | None, token_id: str | None, user: str | None) -> None:
    """Revoke a token, or all tokens of a user, at a broker or at all of a cluster."""
    if sum(one is not None for one in (text, token_id, user)) != 1:
        raise WrongUsage("give one of --token, --id and --user")
    expires_at: int | None = None
    if text is not None:
        claims = _said(text)["claims"]
        token_id, expires_at = claims.get("jti"), claims.get("exp")
        if not isinstance(token_id, str) or not token_id:
            raise WrongUsage("the token has no id (jti): revoke all tokens of its user (--user)")
        expires_at = expires_at + 1 if isinstance(expires_at, int) else None

    async def ask(admin: "AdminClient") -> None:
        await ask_each(
            await target.addresses(admin, masters_only=False),
            lambda address: admin.revoke_token(address, token_id=token_id, username=user, expires_at=expires_at),
            done=lambda address: f"revoke {address} success.",
        )

    with_admin(namesrv, ask)
