"""Control: a gRPC server that answers every send, receive and acknowledgement with the same bytes.

    python -m benchmarks.proxy.canned asyncio|uvloop|threads|h2corn
    python -m benchmarks.proxy.canned relay ADDRESS

It reads no message and asks no broker, so it shows what grpcio's server costs alone, and with `h2corn` that one.
`relay` is `uvloop`, where each
send and acknowledgement waits for the answer of the broker at ADDRESS to one small request.  So it shows what any proxy
on grpcio costs at least.  It prints its port.
"""

import asyncio
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import uvloop

from proxy.config import H2CORN, ProxyConfig
from proxy.convert.settings import merged
from proxy.server.dispatcher import SERVICE
from proxy.server.grpcio_server import options
from proxy.server.h2corn_port import H2cornPort
from proxy.status import OK
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import timestamp
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import GetMaxOffsetRequestHeader
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC

RELAY: Final = "relay"
KINDS: Final = ("asyncio", "uvloop", "threads", H2CORN, RELAY)
# Messages of one answer to a receive: as many as `compat.grpc.Bench` asks for.
_BATCH: Final = 32
_BODY: Final = bytes(1024)
_THREADS: Final = 16
_MILLION: Final = 1_000_000
_GRPC_HEAD: Final = 5


def _send_answer() -> bytes:
    entry = wire.SendResultEntry(status=OK, message_id="0" * 34, offset=1)
    return wire.SendMessageResponse(status=OK, entries=[entry]).SerializeToString()


def _ack_answer() -> bytes:
    entry = wire.AckMessageResultEntry(status=OK, message_id="0" * 34, receipt_handle="1" * 80)
    return wire.AckMessageResponse(status=OK, entries=[entry]).SerializeToString()


def _received(request: bytes) -> list[bytes]:
    """Return the parts of the answer to a receive."""
    topic = wire.ReceiveMessageRequest.FromString(request).message_queue.topic
    now = timestamp(time.time_ns() // _MILLION)
    system = wire.SystemProperties(
        message_id="01" + "A" * 32, receipt_handle="1" * 80, born_timestamp=now, store_timestamp=now,
        born_host="127.0.0.1:1", store_host="127.0.0.1:1", body_encoding=wire.IDENTITY, message_type=wire.NORMAL,
        invisible_duration={"seconds": 60}, delivery_attempt=1, queue_id=1, queue_offset=1,
        body_digest=wire.Digest(type=wire.CRC32, checksum=f"{zlib.crc32(_BODY):X}"),
    )  # fmt: skip
    message = wire.ReceiveMessageResponse(message=wire.Message(topic=topic, body=_BODY, system_properties=system))
    first, last = wire.ReceiveMessageResponse(status=OK), wire.ReceiveMessageResponse(delivery_timestamp=now)
    return [first.SerializeToString(), *[message.SerializeToString()] * _BATCH, last.SerializeToString()]


def _route(request: bytes) -> bytes:
    asked = wire.QueryRouteRequest.FromString(request)
    broker = wire.Broker(name="canned", id=0, endpoints=asked.endpoints)
    queues = [
        wire.MessageQueue(
            topic=asked.topic, id=number, permission=wire.READ_WRITE, broker=broker, accept_message_types=[wire.NORMAL]
        )
        for number in range(4)
    ]
    return wire.QueryRouteResponse(status=OK, message_queues=queues).SerializeToString()


def _settings(request: bytes) -> bytes | None:
    command = wire.TelemetryCommand.FromString(request)
    if command.WhichOneof("command") != "settings":
        return None
    return wire.TelemetryCommand(status=OK, settings=merged(command.settings, None, ProxyConfig())).SerializeToString()


_SEND, _ACK = _send_answer(), _ack_answer()
_UNARY: Final[dict[str, Callable[[bytes], bytes]]] = {
    "SendMessage": lambda _: _SEND,
    "AckMessage": lambda _: _ACK,
    "QueryRoute": _route,
    "Heartbeat": lambda _: wire.HeartbeatResponse(status=OK).SerializeToString(),
    "NotifyClientTermination": lambda _: wire.NotifyClientTerminationResponse(status=OK).SerializeToString(),
}


class _Relay:
    """Unary methods that ask the broker at `address` first, for a figure that costs it next to nothing."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = RemotingClient()
        self._header = GetMaxOffsetRequestHeader(topic=AUTO_CREATE_TOPIC, queue_id=0)

    def method(self, answer: Callable[[bytes], bytes]) -> Any:
        async def serve(request: bytes, context: Any) -> bytes:
            await self._client.invoke(self._address, RequestCode.GET_MAX_OFFSET, self._header)
            return answer(request)

        return serve


def _handlers(*, is_async: bool, relay: _Relay | None = None) -> Any:
    """Return handlers of bytes: nothing is decoded or encoded for sends and acknowledgements."""
    table = {
        name: grpc.unary_unary_rpc_method_handler(_async(answer) if is_async else _sync(answer))
        for name, answer in _UNARY.items()
    }
    if relay is not None:
        for name in ("SendMessage", "AckMessage"):
            table[name] = grpc.unary_unary_rpc_method_handler(relay.method(_UNARY[name]))
    receive, telemetry = (_receive_async, _telemetry_async) if is_async else (_receive_sync, _telemetry_sync)
    table["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(receive)
    table["Telemetry"] = grpc.stream_stream_rpc_method_handler(telemetry)
    return grpc.method_handlers_generic_handler(SERVICE.full_name, table)


def _async(answer: Callable[[bytes], bytes]) -> Any:
    async def serve(request: bytes, context: Any) -> bytes:
        return answer(request)

    return serve


def _sync(answer: Callable[[bytes], bytes]) -> Any:
    return lambda request, context: answer(request)


async def _receive_async(request: bytes, context: Any) -> None:
    for part in _received(request):
        await context.write(part)


def _receive_sync(request: bytes, context: Any) -> Iterator[bytes]:
    yield from _received(request)


async def _telemetry_async(_: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        answer = _settings(request)
        if answer is not None:
            await context.write(answer)


def _telemetry_sync(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for request in requests:
        answer = _settings(request)
        if answer is not None:
            yield answer


async def _serve(relay_to: str | None = None) -> None:
    server = grpc.aio.server(options=options(ProxyConfig()))
    relay = None if relay_to is None else _Relay(relay_to)
    server.add_generic_rpc_handlers((_handlers(is_async=True, relay=relay),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def _serve_in_threads() -> None:
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=options(ProxyConfig()))
    server.add_generic_rpc_handlers((_handlers(is_async=False),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    threading.Event().wait()


_HEAD: Final = {"type": "http.response.start", "status": 200, "trailers": True,
                "headers": [(b"content-type", b"application/grpc")]}  # fmt: skip
_TRAILERS: Final = {"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]}


async def _answer_http(scope: Any, receive: Any, send: Any) -> None:
    """Answer a call over ASGI with nothing of the proxy between; each event has one message of the client."""
    name = scope["path"].rpartition("/")[2]
    del scope
    await send(_HEAD)
    while (event := await receive())["type"] == "http.request":
        raw, is_last = event.get("body", b"")[_GRPC_HEAD:], not event.get("more_body", False)
        parts: list[bytes | None] = []
        if raw:
            if name == "ReceiveMessage":
                parts += _received(raw)
            else:
                parts.append(_settings(raw) if name == "Telemetry" else _UNARY[name](raw))
        del raw
        for part in parts:
            if part is not None:
                body = struct.pack(">BI", 0, len(part)) + part
                await send({"type": "http.response.body", "body": body, "more_body": True})
        if is_last:
            break
    if event["type"] != "http.request":
        await asyncio.Event().wait()  # h2corn cancels the task of a client that has gone
    await send({"type": "http.response.body", "body": b""})
    await send(_TRAILERS)


async def _serve_h2corn() -> None:
    port = H2cornPort("127.0.0.1", 0, ProxyConfig(), None, _answer_http, is_shared=False)
    await port.start()
    print(port.number, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve until a signal."""
    kind, *address = sys.argv[1:] or [""]
    if kind not in KINDS:
        raise SystemExit(f"{kind!r}: allowed is {', '.join(KINDS)}")
    if (kind == RELAY) != (len(address) == 1):
        raise SystemExit(f"{RELAY} alone takes the address of a broker")
    if kind == "threads":
        _serve_in_threads()
    elif kind == H2CORN:
        uvloop.run(_serve_h2corn())
    elif kind == RELAY:
        uvloop.run(_serve(address[0]))
    elif kind == "uvloop":
        uvloop.run(_serve())
    else:
        asyncio.run(_serve())


if __name__ == "__main__":
    main()
