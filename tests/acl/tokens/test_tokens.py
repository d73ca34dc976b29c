"""What a verifier accepts, what it costs, and when a token ends."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK

from acl.auth.errors import AuthRefused
from acl.tokens import tokens as module
from acl.tokens.creation import public_part
from acl.tokens.revocations import Revocation, Revocations
from acl.tokens.settings import TokenSettings
from acl.tokens.token_text import MAX_TOKEN_CHARS, is_token, masked
from acl.tokens.tokens import NotVerified, Tokens, tokens_of
from acl.tokens.verification_keys import NoKeys, public_keys, secret_keys
from sprocket.common.errors import ConfigError, RequestError
from tests.acl.tokens.makers import ALGORITHMS, key, key_files, raw_token, token, verifier
from tests.clock import ManualClock

NOW_S = ManualClock().wall_ms() // 1000


def refusal(tokens: Tokens, text: str) -> str:
    with pytest.raises(RequestError) as refused:
        tokens.verify(text)
    assert text not in refused.value.remark
    return refused.value.remark


def encoded(value: object) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def claims(**changes: Any) -> dict[str, Any]:
    return {"sub": "alice", "jti": "t1", "iat": NOW_S, "exp": NOW_S + 600} | changes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_a_known_key_names_its_user_and_roles(tmp_path: Path, algorithm: str) -> None:
    tokens = verifier(tmp_path, key(algorithm))
    found = tokens.verify(token(key(algorithm), NOW_S, roles=("readers", "writers")))
    assert (found.user, found.roles, found.token_id) == ("alice", ("readers", "writers"), "t1")
    assert found.text not in repr(found)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_another_key_with_the_same_name_is_refused(tmp_path: Path, algorithm: str) -> None:
    tokens = verifier(tmp_path, key(algorithm))
    forged = {**key(algorithm, "second"), "kid": key(algorithm)["kid"]}
    with pytest.raises(NotVerified):
        tokens.verify(token(forged, NOW_S))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_changed_character_is_noticed(tmp_path: Path, algorithm: str) -> None:
    tokens = verifier(tmp_path, key(algorithm))
    good = token(key(algorithm), NOW_S)
    # The last character has bits that are no part of a signature: another spelling of the same token is no harm.
    for index in range(0, len(good) - 1, 7):
        other = "A" if good[index] != "A" else "B"
        with pytest.raises(RequestError):
            tokens.verify(good[:index] + other + good[index + 1 :])
    assert tokens.verify(good).user == "alice"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "HS384", "RS384", "PS256", "ES256K"])
def test_no_other_algorithm_is_accepted_whatever_the_signature(tmp_path: Path, name: str) -> None:
    tokens = verifier(tmp_path, *map(key, ALGORITHMS))
    for signature in ("", "AA", encoded(b"x" * 64)):
        forged = f"{encoded({'alg': name, 'typ': 'JWT'})}.{encoded(claims())}.{signature}"
        with pytest.raises(NotVerified):
            tokens.verify(forged)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_public_key_is_never_a_secret(tmp_path: Path, algorithm: str) -> None:
    tokens = verifier(tmp_path, key(algorithm))
    material = PyJWK(dict(public_part(key(algorithm)))).key
    forms = [json.dumps(public_part(key(algorithm))).encode(), (tmp_path / "public.json").read_bytes()]
    forms += [material.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)]
    forms += [material.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)]
    for secret in forms:
        for header in ({"alg": "HS256"}, {"alg": "HS256", "kid": key(algorithm)["kid"]}):
            signed = f"{encoded(header)}.{encoded(claims())}"
            forged = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
            with pytest.raises(NotVerified):
                tokens.verify(forged)


def test_a_token_of_one_kind_of_key_cannot_name_the_key_of_another(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, *map(key, ALGORITHMS))
    for algorithm in ALGORITHMS:
        for other in ALGORITHMS:
            text = raw_token(key(algorithm), claims(), kid=key(other)["kid"])
            if algorithm == other:
                assert tokens.verify(text).user == "alice"
            else:
                with pytest.raises(NotVerified):
                    tokens.verify(text)


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "https://evil.example/keys.json"}, {"x5u": "https://evil.example/cert.pem"}, {"x5c": ["MIIB"]},
        {"jwk": dict(public_part(key("ES256", "second")))}, {"kid": "../../../etc/passwd"},
        {"kid": "/dev/zero"}, {"kid": "' OR 1=1 --"}, {"kid": "x\x00y"}, {"kid": "k" * 257},
    ],
)  # fmt: skip
def test_a_header_never_chooses_the_key(
    tmp_path: Path, header: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = verifier(tmp_path, key("ES256"))
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: pytest.fail("a header was followed"))
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a header was followed"))
    forged = {**key("ES256", "second"), "kid": key("ES256")["kid"]}
    with pytest.raises(NotVerified):
        tokens.verify(raw_token(forged, claims(), **header))


@pytest.mark.parametrize("header", [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"b64": False}, {"typ": "JWE"}])
def test_a_header_that_demands_what_is_unknown_is_refused(tmp_path: Path, header: dict[str, Any]) -> None:
    signed = f"{encoded({'alg': 'HS256', 'kid': key('HS256')['kid'], **header})}.{encoded(claims())}"
    secret = PyJWK(dict(key("HS256"))).key
    text = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
    with pytest.raises(NotVerified):
        verifier(tmp_path, key("HS256")).verify(text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW_S - 11}, "has expired"),
        ({"exp": None}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": "9999999999"}, "exp is no time"),
        ({"exp": [9999999999]}, "exp is no time"),
        ({"nbf": NOW_S + 11}, "not valid yet"),
        ({"nbf": {}}, "nbf is no time"),
        ({"iat": NOW_S + 11}, "issued in the future"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": "  "}, "names no user"),
        ({"sub": ["alice"]}, "sub is no text"),
        ({"sub": 7}, "sub is no text"),
        ({"sub": "al\nice"}, "names no user"),
        ({"sub": "a" * 257}, "names no user"),
        ({"roles": {"admin": True}}, "lists no names of roles"),
        ({"roles": ["a\x00b"]}, "lists no names of roles"),
        ({"roles": [["admin"]]}, "lists no names of roles"),
        ({"roles": [str(one) for one in range(101)]}, "101 roles, at most 100"),
        ({"jti": 7}, "jti is no text"),
    ],
)
def test_claims_of_wrong_kinds_or_times_are_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(verifier(tmp_path, key("HS256")), raw_token(key("HS256"), claims(**changes)))


@pytest.mark.parametrize("changes", [{"exp": NOW_S - 9}, {"nbf": NOW_S + 9}, {"iat": NOW_S + 9}])
def test_clocks_may_differ_a_little(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert verifier(tmp_path, key("HS256")).verify(raw_token(key("HS256"), claims(**changes))).user == "alice"


def test_a_number_without_end_is_no_time(tmp_path: Path) -> None:
    secret = PyJWK(dict(key("HS256"))).key
    for number in (b"1e400", b"NaN", b"Infinity"):
        header = encoded({"alg": "HS256", "kid": key("HS256")["kid"]})
        payload = b'{"sub":"alice","exp":%s}' % number
        signed = f"{header}.{encoded(payload)}"
        text = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
        refusal(verifier(tmp_path, key("HS256")), text)


def test_a_token_without_expiry_needs_the_setting(tmp_path: Path) -> None:
    text = token(key("ES256"), NOW_S, life_s=None)
    assert "tokenExpiryRequired" in refusal(verifier(tmp_path, key("ES256")), text)
    assert verifier(tmp_path, key("ES256"), token_expiry_required=False).verify(text).expires_at_s is None


@pytest.mark.parametrize("aud", [None, "other", ["other", 7], {"rocketmq": 1}, "rocketmq2"])
def test_a_token_for_another_audience_is_refused(tmp_path: Path, aud: Any) -> None:
    tokens = verifier(tmp_path, key("HS256"), token_audience="rocketmq, orders")
    said = claims(aud=aud) if aud else claims()
    assert refusal(tokens, raw_token(key("HS256"), said)) == "the token is for another audience"
    for good in ("rocketmq", ["x", "orders"]):
        assert tokens.verify(raw_token(key("HS256"), claims(aud=good))).user == "alice"


def test_a_token_of_another_issuer_is_refused(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, key("HS256"), token_issuer="https://a.example")
    for issuer in ("https://b.example", "https://a.example/", ""):
        assert "issuer" in refusal(tokens, raw_token(key("HS256"), claims(iss=issuer)))
    assert tokens.verify(raw_token(key("HS256"), claims(iss="https://a.example"))).issuer == "https://a.example"


def test_other_claims_can_name_user_and_roles(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, key("HS256"), token_auth_claim="client_id", token_role_claim="realm_access.roles")
    found = tokens.verify(raw_token(key("HS256"), claims(client_id="billing", realm_access={"roles": ["b", "a", "a"]})))
    assert (found.user, found.roles) == ("billing", ("a", "b"))
    scopes = verifier(tmp_path, key("HS256"), token_role_claim="scope")
    assert scopes.verify(raw_token(key("HS256"), claims(scope="read write"))).roles == ("read", "write")


def test_a_huge_token_is_refused_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = verifier(tmp_path, key("HS256"))
    monkeypatch.setattr("base64.urlsafe_b64decode", lambda _: pytest.fail("it was decoded"))
    text = "eyJ" + "a" * MAX_TOKEN_CHARS + ".eyJ.x"
    assert f"at most {MAX_TOKEN_CHARS}" in refusal(tokens, text)


@pytest.mark.parametrize(
    "text",
    ["eyJ.", "eyJ..", "eyJhbGciOiJIUzI1NiJ9.eyJ9.x.y.z", "eyJ!.eyJ.x", "eyJhbGciOiJIUzI1NiJ9.e30=.x", "eyJ\ud800.a.b",
     f"{encoded(b'[' * 3000)}.e30.x", f"{encoded({'alg': ['HS256']})}.e30.x", f"{encoded({'alg': 'HS256'})}.__4.x",
     f"{encoded({'alg': 'HS256'})}.{encoded([1])}.x"],
)  # fmt: skip
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotVerified):
        verifier(tmp_path, key("HS256")).verify(text)


def test_a_known_token_costs_no_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = verifier(tmp_path, key("RS256"))
    good, bad = token(key("RS256"), NOW_S), raw_token({**key("RS256", "x"), "kid": key("RS256")["kid"]}, claims())
    first = tokens.verify(good)
    refusal(tokens, bad)
    monkeypatch.setattr(module, "unverified", lambda _: pytest.fail("it was read again"))
    assert tokens.verify(good) is first
    with pytest.raises(NotVerified):
        tokens.verify(bad)


def test_tokens_that_are_remembered_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VERIFIED", 4)
    monkeypatch.setattr(module, "MAX_REFUSED", 4)
    tokens = verifier(tmp_path, key("HS256"))
    found = [tokens.verify(token(key("HS256"), NOW_S, token_id=str(number))) for number in range(20)]
    # What was made of a token that is forgotten ends, so that its expiry is noticed.
    assert [one.revision.number for one in found] == [1] * 16 + [0] * 4
    for number in range(20):
        refusal(tokens, f"eyJ{number}.eyJ.x")


def test_an_expired_token_ends_and_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    tokens = verifier(tmp_path, key("EdDSA"), clock=clock)
    text = token(key("EdDSA"), NOW_S, life_s=60)
    found = tokens.verify(text)
    clock.advance(69)
    tokens.look()
    assert found.revision.number == 0 and tokens.verify(text) is found
    clock.advance(1)
    tokens.look()
    assert found.revision.number == 1
    for _ in range(2):
        assert refusal(tokens, text) == "the token of User:alice has expired; present a new one"
    assert tokens.verify(token(key("EdDSA"), NOW_S + 70, token_id="t2")).user == "alice"


def test_a_revoked_token_is_refused_and_others_are_not(tmp_path: Path) -> None:
    revoked = [Revocations()]
    tokens = verifier(tmp_path, key("HS256"), revoked=lambda: revoked[0])
    first, second = (token(key("HS256"), NOW_S, token_id=name) for name in ("t1", "t2"))
    for text in (first, second):
        assert tokens.verify(text).user == "alice"
    revoked[0] = revoked[0].with_entry(Revocation(token_id="t1"), NOW_S)
    assert refusal(tokens, first) == "the token of User:alice is revoked; present a new one"
    assert tokens.verify(second).user == "alice"
    revoked[0] = revoked[0].with_entry(Revocation(user="alice", before_s=NOW_S), NOW_S)
    assert "revoked" in refusal(tokens, second)
    assert tokens.verify(token(key("HS256"), NOW_S + 1, token_id="t3")).user == "alice"


def test_revocations_that_are_needed_no_longer_are_dropped() -> None:
    old = Revocations().with_entry(Revocation(token_id="t1", until_s=100.0), 0).with_entry(Revocation(user="a"), 0)
    assert set(old.with_entry(Revocation(token_id="t2"), 99).entries) == {"jti:t1", "sub:a", "jti:t2"}
    assert set(old.with_entry(Revocation(token_id="t2"), 100).entries) == {"sub:a", "jti:t2"}
    later = (
        Revocations().with_entry(Revocation(user="a", before_s=9), 0).with_entry(Revocation(user="a", before_s=5), 0)
    )
    assert later.entries["sub:a"].before_s == 9


def test_a_changed_file_of_keys_ends_the_tokens_of_the_old_ones(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, key("ES256"))
    old, new = token(key("ES256"), NOW_S), token(key("ES256", "second"), NOW_S)
    found = tokens.verify(old)
    refusal(tokens, new)
    key_files(tmp_path, key("ES256", "second"), key("EdDSA"))
    tokens.look()
    assert found.revision.number == 1
    refusal(tokens, old)
    assert tokens.verify(new).user == "alice"
    (tmp_path / "public.json").write_text("damaged")
    tokens.look()
    assert tokens.verify(new).user == "alice"


def test_keys_in_other_forms(tmp_path: Path) -> None:
    for algorithm in ("RS256", "ES256", "EdDSA"):
        file = tmp_path / f"{algorithm}.pem"
        material = PyJWK(dict(public_part(key(algorithm)))).key
        file.write_bytes(material.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        made = tokens_of(TokenSettings(token_public_key=f"file://{file}"), ManualClock(), Revocations)
        assert made is not None and made.verify(token(key(algorithm), NOW_S)).user == "alice"
    secret = tmp_path / "secret.key"
    secret.write_bytes(PyJWK(dict(key("HS256"))).key)
    made = tokens_of(TokenSettings(token_secret_key=str(secret)), ManualClock(), Revocations)
    assert made is not None and made.verify(token(key("HS256"), NOW_S)).user == "alice"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps(dict(key("ES256"))), "is private"),
        (json.dumps({"keys": [dict(key("HS256"))]}), "no key for RS256"),
        (json.dumps({"keys": []}), "no key for"),
        (json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}), "bits|cannot be read"),
        (json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}), "cannot be read"),
        (json.dumps({"keys": [{"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}]}), "no key for"),
        (json.dumps({"keys": [{"kty": "RSA"}] * 101}), "at most 100"),
        ("{" * 5000, "no JWK"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no public key in PEM"),
    ],
)
def test_a_bad_file_of_public_keys_is_refused(content: str, reason: str) -> None:
    with pytest.raises(NoKeys, match=reason) as refused:
        public_keys(content.encode(), "keys.json")
    assert str(key("ES256")["d"]) not in str(refused.value)


def test_a_short_secret_is_refused() -> None:
    for content in (b"short", json.dumps({"kty": "oct", "k": encoded(b"x" * 31)}).encode()):
        with pytest.raises(NoKeys, match="at least 32"):
            secret_keys(content, "secret.key")
    with pytest.raises(NoKeys, match="tokenPublicKey"):
        secret_keys(b"-----BEGIN PUBLIC KEY-----\n" + b"A" * 64, "secret.key")


def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    for settings, reason in (
        ({"open_id_allowed_token_issuers": "https://a.example"}, "openIDAllowedAudiences"),
        ({"open_id_allowed_token_issuers": "http://a.example", "open_id_allowed_audiences": "x"}, "https"),
        ({"open_id_allowed_token_issuers": "file:///etc", "open_id_allowed_audiences": "x"}, "https"),
        ({"open_id_jwks_locations": "https://a.example /keys.json"}, "openIDAllowedTokenIssuers"),
        ({"token_public_key": str(tmp_path / "absent")}, "absent"),
        ({"token_auth_claim": " "}, "tokenAuthClaim"),
    ):
        with pytest.raises(ConfigError, match=reason):
            tokens_of(TokenSettings(**settings), ManualClock(), Revocations)


def test_only_tokens_are_masked() -> None:
    assert is_token("eyJhbGciOiJIUzI1NiJ9.e30.x") and masked("eyJhbGciOiJIUzI1NiJ9.e30.x") == "(a token)"
    assert masked("alice") == "alice" and masked("eyJaneDoe") == "eyJaneDoe"


def test_a_refusal_that_a_guess_causes_counts_as_one(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, key("HS256"))
    with pytest.raises(AuthRefused):
        tokens.verify(raw_token(key("HS256"), claims(exp=1)))
