"""`sprocket token`: keys, tokens, and what is printed."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from acl.tokens.revocations import Revocations
from acl.tokens.settings import TokenSettings
from acl.tokens.tokens import tokens_of
from sprocket.common.clock import SystemClock
from sprocket_cli.main import main


def run(*words: object, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["token", *map(str, words)], input=stdin)


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA"])
def test_a_server_accepts_what_is_made(tmp_path: Path, algorithm: str) -> None:
    made = run("keys", "create", tmp_path / "keys", "--algorithm", algorithm)
    assert made.exit_code == 0, made.output
    signing = tmp_path / "keys" / "signing.json"
    assert stat.S_IMODE(signing.stat().st_mode) == 0o600
    secret = json.loads(signing.read_text())
    for member in ("k", "d"):
        assert member not in secret or secret[member] not in made.output
    created = run("create", "alice", "--key", signing, "--role", "readers", "--audience", "rocketmq")
    text = created.output.strip()
    key, value = made.output.splitlines()[-1].removeprefix("Servers: ").split(" = ")
    named = {"tokenSecretKey": "token_secret_key", "tokenPublicKey": "token_public_key"}[key]
    tokens = tokens_of(TokenSettings(**{named: value, "token_audience": "rocketmq"}), SystemClock(), Revocations)
    assert tokens is not None
    found = tokens.verify(text)
    assert (found.user, found.roles) == ("alice", ("readers",)) and found.token_id
    shown = run("show", "--json", stdin=text)
    assert json.loads(shown.output)["claims"]["sub"] == "alice"
    assert text.rpartition(".")[2] not in shown.output


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    assert run("keys", "create", tmp_path).exit_code == 0
    before = (tmp_path / "signing.json").read_bytes()
    again = run("keys", "create", tmp_path)
    assert again.exit_code == 2 and "already" in again.output
    assert (tmp_path / "signing.json").read_bytes() == before


def test_wrong_usage_says_what_to_do(tmp_path: Path) -> None:
    run("keys", "create", tmp_path)
    bad = tmp_path / "bad.json"
    bad.write_text('{"kty":"oct","k":"c2VjcmV0LXRoYXQtbm9ib2R5LXNlZXM","alg":"ES256"}')
    for words, reason in (
        (("create", "a", "--key", tmp_path / "absent"), "No such file"),
        (("create", "a", "--key", tmp_path / "public.json"), "cannot sign"),
        (("create", "a", "--key", bad), "cannot sign"),
        (("show", "hello"), "no token"),
        (("revoke", "-b", "127.0.0.1:1"), "--token, --id and --user"),
        (("revoke", "-b", "127.0.0.1:1", "--token", "eyJhbGciOiJIUzI1NiJ9.e30.x"), "no id"),
    ):
        result = run(*words)
        assert result.exit_code == 2 and reason in result.output, result.output
        assert "c2VjcmV0" not in result.output
