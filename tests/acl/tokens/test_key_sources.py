"""Keys of issuers: when they are fetched, what a fetch may cost, and what stays if it fails."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from acl.tokens.creation import Jwk, public_part
from acl.tokens.key_fetch import fetch
from acl.tokens.key_sources import KeySources
from acl.tokens.revocations import Revocations
from acl.tokens.settings import TokenSettings
from acl.tokens.tokens import NotVerified, Tokens
from acl.tokens.verification_keys import MAX_FILE_BYTES
from sprocket.common.errors import RequestError
from tests.acl.tokens.makers import key, token, verifier
from tests.clock import ManualClock

ISSUER, KEYS = "https://issuer.example", "https://issuer.example/keys"
NOW_S = ManualClock().wall_ms() // 1000


def key_set(*keys: Jwk) -> bytes:
    return json.dumps({"keys": [dict(public_part(one)) for one in keys]}).encode()


class Site:
    """What an issuer publishes, by URL; what is absent cannot be fetched."""

    def __init__(self, *keys: Jwk) -> None:
        found = {"issuer": ISSUER, "jwks_uri": KEYS}
        self.pages = {ISSUER + "/.well-known/openid-configuration": json.dumps(found).encode(), KEYS: key_set(*keys)}
        self.fetched: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if url not in self.pages:
            raise OSError("no route")
        return self.pages[url]


class Server:
    """Tokens of an issuer, whose clock a test moves."""

    def __init__(self, site: Site, **more: Any) -> None:
        settings = TokenSettings(open_id_allowed_token_issuers=ISSUER, open_id_allowed_audiences="rocketmq", **more)
        self.clock, self.site = ManualClock(), site
        self.keys = KeySources(settings, self.clock, site.fetch)
        self.tokens = Tokens(settings, self.keys, self.clock, Revocations)

    async def look(self, later_s: float = 0.0) -> None:
        """Look at the keys, and wait for what is fetched."""
        self.clock.advance(later_s)
        self.tokens.look()
        for _ in range(1000):
            if not self.keys.is_fetching:
                break
            await asyncio.sleep(0.001)
        self.tokens.look()

    def accepts(self, signer: Jwk, **more: Any) -> bool:
        said = {"issuer": ISSUER, "audience": "rocketmq", **more}
        try:
            return self.tokens.verify(token(signer, self.clock.wall_ms() // 1000, **said)).issuer == ISSUER
        except RequestError:
            return False


async def test_keys_are_found_by_discovery_and_rotate() -> None:
    site = Site(key("RS256"))
    server = Server(site)
    assert not server.accepts(key("RS256"))
    await server.look()
    assert server.accepts(key("RS256")) and not server.accepts(key("RS256"), audience="other")
    site.pages[KEYS] = key_set(key("RS256"), key("ES256"))
    assert not server.accepts(key("ES256"))
    await server.look(60)
    assert server.accepts(key("ES256")) and server.accepts(key("RS256"))
    site.pages[KEYS] = key_set(key("ES256"))
    await server.look(3600)
    assert server.accepts(key("ES256")) and not server.accepts(key("RS256"))


async def test_unknown_keys_cause_one_fetch_in_an_interval() -> None:
    site = Site(key("RS256"))
    server = Server(site, open_id_jwks_locations=f"{ISSUER} {KEYS}")
    await server.look()
    assert site.fetched == [KEYS]
    for _ in range(50):
        for number in range(20):
            forged = {**key("ES256"), "kid": f"unknown-{number}"}
            assert not server.accepts(forged)
        await server.look(1)
    assert site.fetched == [KEYS]
    await server.look(10)
    assert site.fetched == [KEYS] * 2


@pytest.mark.parametrize("page", [None, b"", b"{}", b"<html>", b"[" * 5000, b'{"keys":[{"kty":"oct","k":"AAAA"}]}'])
async def test_an_issuer_that_fails_keeps_its_keys(page: bytes | None) -> None:
    site = Site(key("EdDSA"))
    server = Server(site)
    await server.look()
    if page is None:
        del site.pages[KEYS]
    else:
        site.pages[KEYS] = page
    await server.look(3600)
    assert server.accepts(key("EdDSA"))
    site.pages[KEYS] = key_set(key("ES256"))
    await server.look(3600)
    assert server.accepts(key("ES256")) and not server.accepts(key("EdDSA"))


async def test_the_configuration_of_another_issuer_is_not_believed() -> None:
    site = Site(key("EdDSA"))
    found = {"issuer": "https://evil.example", "jwks_uri": KEYS}
    site.pages[ISSUER + "/.well-known/openid-configuration"] = json.dumps(found).encode()
    server = Server(site)
    await server.look()
    assert KEYS not in site.fetched and not server.accepts(key("EdDSA"))


async def test_keys_of_an_issuer_verify_only_its_own_tokens(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(key("ES256")))
    server = Server(Site(key("EdDSA")), token_public_key=str(tmp_path / "keys.json"), token_expiry_required=True)
    await server.look()
    assert server.accepts(key("EdDSA")) and not server.accepts(key("ES256"))
    with pytest.raises(NotVerified):
        server.tokens.verify(token(key("EdDSA"), NOW_S))
    assert server.tokens.verify(token(key("ES256"), NOW_S)).issuer is None


@contextmanager
def site(status: int, body: bytes, pause_s: float = 0.0, **headers: str) -> Iterator[str]:
    """A site that answers each GET so, byte by byte if it pauses."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for start in range(0, len(body), 1 if pause_s else len(body)):
                    self.wfile.write(body[start : start + (1 if pause_s else len(body))])
                    ended.wait(pause_s)
                    if ended.is_set():
                        return
            except OSError:
                return

        def log_message(self, format: str, *args: Any) -> None: ...

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def fetched(url: str, timeout_s: float = 5.0) -> bytes:
    return fetch(url, timeout_s, ssl.create_default_context(), needs_https=False)


def test_a_fetch_has_limits_on_bytes_and_time_and_follows_nothing() -> None:
    with site(200, b"keys") as url:
        assert fetched(url) == b"keys"
        with pytest.raises(ValueError, match="no URL that may be fetched"):
            fetch(url, 5, ssl.create_default_context(), needs_https=True)
        with site(302, b"", Location=url) as elsewhere, pytest.raises(ValueError, match="302; redirects"):
            fetched(elsewhere)
    with site(200, b"x" * (MAX_FILE_BYTES + 1)) as url, pytest.raises(ValueError, match="more than"):
        fetched(url)
    with site(200, b"x" * 100, pause_s=0.05) as url, pytest.raises(TimeoutError):
        fetched(url, timeout_s=0.3)
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/keys", "https:///keys", "gopher://x"):
        with pytest.raises(ValueError, match="no URL that may be fetched"):
            fetched(url)


async def test_operators_are_told_of_sources_that_fail_and_of_keys_that_are_gone(tmp_path: Path) -> None:
    first, second = key("ES256"), key("ES256", "second")
    server = Server(Site(first))
    await server.look()
    assert server.tokens.key_troubles() == []
    page = server.site.pages.pop(KEYS)
    await server.look(later_s=100_000)
    (trouble,) = server.tokens.key_troubles()
    assert trouble == f"{ISSUER} cannot be fetched, the old keys stay: no route"
    server.site.pages[KEYS] = page
    await server.look(later_s=100_000)
    assert server.tokens.key_troubles() == []
    server.site.pages[KEYS] = key_set(second)
    await server.look(later_s=100_000)
    (trouble,) = server.tokens.key_troubles()
    assert trouble == f"{ISSUER} no longer has these keys: {first['kid']}"
    await server.look(later_s=100_000)
    assert server.tokens.key_troubles() == [trouble]


def test_operators_are_told_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    server = verifier(tmp_path, key("ES256"))
    server.look()
    assert server.key_troubles() == []
    (tmp_path / "public.json").write_text("{")
    server.look()
    (trouble,) = server.key_troubles()
    assert "public.json cannot be read, the old keys stay" in trouble


def test_operators_are_told_of_tokens_that_are_not_renewed(tmp_path: Path) -> None:
    clock = ManualClock()
    server = verifier(tmp_path, key("ES256"), clock=clock)
    connection = Closable()
    one = server.verify(token(key("ES256"), clock.wall_ms() / 1000, life_s=600))
    clock.advance(560)
    assert server.not_renewed() == []  # nobody holds it
    one.bearers.add(connection)
    ((found, left_s),) = server.not_renewed()
    assert found is one and 0 < left_s <= 60
    one.bearers.discard(connection)  # a newer one came
    assert server.not_renewed() == []


class Closable:
    def close(self) -> None: ...
