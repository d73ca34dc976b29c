"""Tokens that an async function fetches: shared, renewed before their end, kept while the function fails."""

import asyncio
import base64
import json
from collections.abc import Callable

import pytest

from sprocket.remoting import renewed_token
from sprocket.remoting.credentials import ACCESS_KEY
from sprocket.remoting.renewed_token import RenewedToken, TokenUnavailable, end_of
from tests.waiting import until


def jwt(number: int, ends_s: float | None) -> str:
    claims = {"sub": f"u{number}"} | ({} if ends_s is None else {"exp": ends_s})
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"h.{text}.s"


class Client:
    def __init__(self) -> None:
        self.is_open = True
        self.presented = 0

    def present_again(self) -> None:
        self.presented += 1


class Source:
    """An application's function; `clock_s` is the time, a token lives for `life_s`."""

    def __init__(self, life_s: float | None) -> None:
        self.calls = 0
        self.life_s = life_s
        self.clock_s = 1000.0
        self.fails = False

    async def __call__(self) -> str:
        self.calls += 1
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("the issuer is away")
        return jwt(self.calls, None if self.life_s is None else self.clock_s + self.life_s)


@pytest.fixture
def source() -> Source:
    return Source(life_s=600)


def made(source: Source) -> RenewedToken:
    return RenewedToken(source, lambda: source.clock_s)


async def test_those_who_wait_share_one_fetch_and_the_token_is_kept(source: Source) -> None:
    credentials = made(source)
    with pytest.raises(TokenUnavailable, match="open the client"):
        credentials.signed({}, b"")
    await asyncio.gather(*(credentials.ready() for _ in range(5)))
    await credentials.ready()
    assert source.calls == 1 and credentials.signed({}, b"")[ACCESS_KEY] == credentials.token == jwt(1, 1600.0)
    assert credentials.token not in repr(credentials)


async def test_a_token_is_renewed_before_its_end_while_a_client_is_open(source: Source) -> None:
    source.life_s = 0.2
    credentials, client = made(source), Client()
    credentials.join(client)
    await credentials.ready()
    await until(lambda: client.presented >= 3)
    assert source.calls >= 3 and credentials.token in {jwt(number, source.clock_s + 0.2) for number in (2, 3, 4)}
    client.is_open = False
    calls = source.calls + 1  # one may be on its way
    await asyncio.sleep(0.5)
    assert source.calls <= calls


async def test_a_failed_renewal_keeps_the_old_token_and_is_tried_again(source: Source) -> None:
    source.life_s = 0.2
    credentials, client = made(source), Client()
    credentials.join(client)
    await credentials.ready()
    first, source.fails = credentials.token, True
    await until(lambda: source.calls >= 2)
    assert credentials.token == first
    source.fails = False
    await until(lambda: credentials.token != first)


async def test_a_token_that_has_ended_is_fetched_again_before_a_connection(source: Source) -> None:
    credentials = made(source)
    await credentials.ready()
    source.clock_s += 601
    await credentials.ready()
    assert source.calls == 2 and credentials.token == jwt(2, 2201.0)


async def _nothing() -> str:
    return ""


async def _ended() -> str:
    return jwt(1, 5.0)


async def _failing() -> str:
    raise OSError("the issuer is away")


@pytest.mark.parametrize(
    ("fetch", "says"),
    [(_nothing, "return the text of a JWT"), (_ended, "has ended"), (_failing, "the issuer is away"),
     (lambda: "text", "TypeError"), (asyncio.Event().wait, "TimeoutError")],
)  # fmt: skip
async def test_a_function_without_a_usable_token_is_told_why_and_called_again_later(
    fetch: Callable[..., object], says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewed_token, "_FETCH_LIMIT_S", 0.01)
    credentials = RenewedToken(fetch, lambda: 1000.0)  # type: ignore[arg-type]
    with pytest.raises(TokenUnavailable, match=says):
        await credentials.ready()
    assert "event=token_not_renewed retry_s=1 " in caplog.text and says in caplog.text


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.!!.c", "a.e30.c", "a.W10.c", "a.eyJleHAiOiJ4In0.c"])
def test_a_text_that_does_not_say_when_it_ends(text: str) -> None:
    assert end_of(text) is None
