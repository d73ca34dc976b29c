"""Every refused request is counted once, by reason and by request code, whichever part refuses it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sprocket.common.errors import (
    ClientError,
    DiskFailed,
    DiskFull,
    InvariantError,
    ProtocolError,
    ReplicasNotEnough,
    RequestError,
    SprocketError,
    StoreBusy,
    StoreError,
)
from sprocket.common.figures import values
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.flow.shedding import shed
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.refusals import Refusal, Refusals, refusal_of
from sprocket.remoting.routes import Action, Check, Handler, NoHeader, Resource, Route, RouteTable, Traffic
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings

BEAT, SEND = RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2


def route(code: RequestCode, handle: Handler | None, batch: Any = None, checks: tuple[Check, ...] = ()) -> Route:
    return Route(code, NoHeader, handle, Resource.NONE, Action.NONE, Traffic.SEND, batch, checks)


@asynccontextmanager
async def serving(table: RouteTable) -> AsyncIterator[tuple[RemotingClient, str]]:
    server, client = RemotingServer(table, ConnectionSettings("127.0.0.1")), RemotingClient()
    await server.start()
    try:
        yield client, f"127.0.0.1:{server.port}"
    finally:
        await client.close()
        await server.stop()


async def refusals_of(table: RouteTable, code: int = BEAT, requests: int = 1) -> tuple[dict[str, str], list[int]]:
    """The counts after `requests`, and the codes of the responses."""
    async with serving(table) as (client, address):
        answers = [await client.invoke(address, code, body=b"x") for _ in range(requests)]
    return values(table.refusals.figures()), [answer.code for answer in answers]


def counted(reason: Reason, code: str, count: int = 1) -> dict[str, str]:
    name = reason.name.lower()
    return dict.fromkeys(("requestsRefused", f"requestsRefused_{name}", f"requestsRefusedOf_{code}"), str(count))


async def later(error: Exception) -> Response:
    await asyncio.sleep(0)
    raise error


def raising(error: Exception) -> Handler:
    def handle(request: Request[Any]) -> Response:
        raise error

    return handle


ERRORS: list[tuple[Exception, Reason, int]] = [
    (RequestError(ResponseCode.NO_PERMISSION, "x", Reason.TOPIC_NOT_WRITABLE), Reason.TOPIC_NOT_WRITABLE, 16),
    (RequestError(ResponseCode.NO_PERMISSION, "x"), Reason.NO_PERMISSION, 16),
    (RequestError(ResponseCode.SYSTEM_BUSY, "x"), Reason.BUSY, 2),
    (RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "x"), Reason.SERVICE_NOT_AVAILABLE, 14),
    (RequestError(ResponseCode.ILLEGAL_OPERATION, "x"), Reason.ILLEGAL_OPERATION, 604),
    (RequestError(ResponseCode.QUERY_NOT_FOUND, "x"), Reason.NOT_FOUND, 22),
    (RequestError(ResponseCode.SYSTEM_ERROR, "x"), Reason.OTHER, 1),
    (ProtocolError("body", "x"), Reason.INVALID_BODY, 1),
    (StoreError("x"), Reason.STORE_UNAVAILABLE, 14),
    (DiskFull("x"), Reason.DISK_FULL, 14),
    (DiskFailed("x"), Reason.DISK_FAILED, 14),
    (StoreBusy("x", Reason.SLOW_FLUSH), Reason.SLOW_FLUSH, 2),
    (StoreBusy("x"), Reason.WAITING, 2),
    (ReplicasNotEnough("x"), Reason.REPLICAS_NOT_ENOUGH, 1),
    (ClientError("x"), Reason.OTHER, 1),
    (InvariantError("x"), Reason.BUG, 1),
    (ZeroDivisionError("x"), Reason.BUG, 1),
]


@pytest.mark.parametrize(("error", "reason", "code"), ERRORS, ids=repr)
@pytest.mark.parametrize("way", ["raise", "later", "refuse", "batch"])
async def test_an_error_of_a_handler(error: Exception, reason: Reason, code: int, way: str) -> None:
    def batch(run: list[Request[Any]]) -> None:
        raise error

    handles: dict[str, Handler | None] = {
        "raise": raising(error),
        "later": lambda _: later(error),
        "refuse": lambda request: request.channel.refuse(request, error),
        "batch": None,
    }
    table = RouteTable([route(BEAT, handles[way], batch if way == "batch" else None)])
    assert await refusals_of(table) == (counted(reason, "HEART_BEAT"), [code])


async def test_a_refusal_that_is_returned_keeps_its_header() -> None:
    refusal = Refusal(ResponseCode.SYSTEM_BUSY, "later", {"a": "b"}, reason=Reason.COLD_READ)
    table = RouteTable([route(BEAT, lambda _: refusal)])
    async with serving(table) as (client, address):
        answer = await client.invoke(address, BEAT)
    assert (answer.code, answer.remark, answer.ext_fields) == (ResponseCode.SYSTEM_BUSY, "later", {"a": "b"})
    assert values(table.refusals.figures()) == counted(Reason.COLD_READ, "HEART_BEAT")


async def test_other_responses_are_no_refusals() -> None:
    table = RouteTable([route(BEAT, lambda _: Response(ResponseCode.PULL_NOT_FOUND))])
    assert await refusals_of(table) == ({"requestsRefused": "0"}, [ResponseCode.PULL_NOT_FOUND])


async def test_unknown_codes_share_one_counter() -> None:
    table = RouteTable([])
    async with serving(table) as (client, address):
        for code in (7777, 8888, SEND):
            await client.invoke(address, code)
    counts = values(table.refusals.figures())
    assert counts["requestsRefused_code_not_supported"] == counts["requestsRefused"] == "3"
    assert (counts["requestsRefusedOf_UNKNOWN"], counts["requestsRefusedOf_SEND_MESSAGE_V2"]) == ("2", "1")


async def test_a_oneway_request_is_counted_once_though_its_batch_fails_too() -> None:
    def batch(run: list[Request[Any]]) -> None:
        for request in run:
            request.channel.refuse(request, RequestError(ResponseCode.TOPIC_NOT_EXIST, "x"))
        raise ZeroDivisionError("a bug")

    table = RouteTable([route(SEND, None, batch)])
    async with serving(table) as (client, address):
        await client.notify(address, SEND)
        await client.invoke(address, SEND)
    assert values(table.refusals.figures()) == counted(Reason.TOPIC_NOT_EXIST, "SEND_MESSAGE_V2", 2)


async def test_a_response_that_cannot_be_encoded_is_counted() -> None:
    table = RouteTable([route(BEAT, lambda _: Response(header={"a": object()}))])  # type: ignore[dict-item]
    assert await refusals_of(table) == (counted(Reason.BUG, "HEART_BEAT"), [ResponseCode.SYSTEM_ERROR])


# Before a handler


@pytest.mark.parametrize("is_batch", [False, True])
async def test_checks_are_asked_in_their_order_before_the_handler(is_batch: bool) -> None:
    asked: list[str] = []

    def check(name: str, *, refuses: Callable[[], bool]) -> Check:
        def ask(_: Request[Any]) -> Response | None:
            asked.append(name)
            return Refusal(ResponseCode.SYSTEM_ERROR, name, reason=Reason.SLAVE) if refuses() else None

        return ask

    def batch(run: list[Request[Any]]) -> None:
        for request in run:
            request.channel.reply(request, handle(request))

    def handle(_: Request[Any]) -> Response:
        asked.append("handler")
        return Response()

    is_closed = True
    checks = (
        check("first", refuses=lambda: False),
        check("second", refuses=lambda: is_closed),
        check("third", refuses=lambda: False),
    )
    table = RouteTable([route(SEND, None if is_batch else handle, batch if is_batch else None, checks)])
    async with serving(table) as (client, address):
        assert (await client.invoke(address, SEND)).remark == "second"
        assert asked == ["first", "second"]
        is_closed = False
        assert (await client.invoke(address, SEND)).code == ResponseCode.SUCCESS
    assert asked[2:] == ["first", "second", "third", "handler"]
    assert values(table.refusals.figures()) == counted(Reason.SLAVE, "SEND_MESSAGE_V2")


async def test_a_run_loses_only_the_requests_that_a_check_refuses() -> None:
    def batch(run: list[Request[Any]]) -> None:
        for request in run:
            request.channel.reply(request, Response(remark=f"served {request.body.decode()} of {len(run)}"))

    def odd(request: Request[Any]) -> Response | None:
        return Refusal(ResponseCode.NO_PERMISSION, "odd") if int(request.body) % 2 else None

    table = RouteTable([route(SEND, None, batch, (odd,))])
    async with serving(table) as (client, address):
        channel = await client.channel(address)
        asked = [channel.request(SEND, body=b"%d" % number, timeout_s=60) for number in range(4)]
        remarks = [(await answer).remark for answer in asked]
    assert remarks[1::2] == ["odd", "odd"]
    assert [(remark or "")[:8] for remark in remarks[::2]] == ["served 0", "served 2"]
    assert values(table.refusals.figures()) == counted(Reason.NO_PERMISSION, "SEND_MESSAGE_V2", 2)


def test_a_route_without_checks_costs_no_call() -> None:
    def handle(_: Request[Any]) -> Response:
        return Response()

    def batch(run: list[Request[Any]]) -> None: ...

    entries = RouteTable([route(BEAT, handle), route(SEND, None, batch)]).entries
    assert entries[BEAT].handle is handle and entries[SEND].batch is batch


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_what_is_shed_is_counted_by_code(serialization: int) -> None:
    table = RouteTable([route(SEND, lambda _: Response()), route(BEAT, lambda _: Response())])
    content = b"".join(
        encode_request(code, number, oneway=number == 5, serialization=serialization)
        for number, code in enumerate([SEND] * 6 + [BEAT] * 2)
    )
    kept, _ = shed(FrameDecoder().feed(content), table, lambda *_: (0.25, "busy"), 0.5)
    assert len(kept) == 2
    counts = values(table.refusals.figures())
    assert counts["requestsRefused"] == counts["requestsRefused_" + Reason.OVERLOAD.name.lower()] == "6"
    assert (counts["requestsRefusedOf_SEND_MESSAGE_V2"], counts["requestsRefusedOf_HEART_BEAT"]) == ("4", "2")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Reason.FRAME_LENGTH),
        (b"\0\0\0\1", Reason.FRAME_LENGTH),
        (b"\0\0\0\x08\0\0\0\x04{no}", Reason.MALFORMED_FRAME),
    ],
)
async def test_bytes_that_end_their_connection_are_counted(content: bytes, reason: Reason) -> None:
    table = RouteTable([])
    async with serving(table) as (_, address):
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(content)
        assert await reader.read() == b""
        writer.close()
    assert table.refusals.by_reason == {reason: 1}


# Counting


def test_counts_that_grew_are_told_once() -> None:
    refusals = Refusals()
    assert refusals.grown() == ""
    refusals.count(Reason.NOT_READY, BEAT)
    refusals.count(Reason.TURNED_OFF, BEAT, 2)
    assert refusals.grown() == "not_ready=1 turned_off=2"
    assert refusals.grown() == ""
    refusals.count(Reason.NOT_READY, BEAT)
    assert refusals.grown() == "not_ready=2 turned_off=2"


def test_every_error_of_ours_has_a_reason() -> None:
    def classes(kind: type[SprocketError]) -> set[type[SprocketError]]:
        return {kind}.union(*(classes(sub) for sub in kind.__subclasses__()))

    for kind in classes(StoreError):
        assert isinstance(kind.refusal_reason, Reason), kind
    assert refusal_of(InvariantError("x")).reason is Reason.BUG
