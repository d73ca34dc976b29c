"""Routes: one record per request code beside its handler, and the table that a server is built from.

A route holds everything that the server must know about a request before it calls the handler: the type of its header,
what access control protects, and its traffic class.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sprocket.common.errors import InvariantError, ProtocolError, RequestError
from sprocket.common.invariant import invariant
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import FLAG_RESPONSE, ReceivedResponse, Request, Response
from sprocket.remoting.engine import header_decoder
from sprocket.remoting.framing import (
    JSON,
    LONG_PREFIX_BYTES,
    PREFIX_BYTES,
    Frame,
    Frames,
    start_of,
)
from sprocket.remoting.headers.base import Header
from sprocket.remoting.refusals import Refusals
from sprocket.remoting.serving.rpc_latency import RpcLatency

if TYPE_CHECKING:
    from sprocket.remoting.signatures_native import Proof


class Resource(Enum):
    """Kind of resource that a request concerns.  Source: RocketMQ 5.3.3, `ResourceType`."""

    NONE = "none"
    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"


class Action(Enum):
    """Action of a request on its resource.  Source: RocketMQ 5.3.3, `Action`."""

    NONE = "none"
    PUB = "pub"
    SUB = "sub"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    GET = "get"
    LIST = "list"


class Traffic(Enum):
    """Class of requests that overload protection treats separately."""

    SEND = "send"
    PULL = "pull"
    CLIENT = "client"
    ADMIN = "admin"


class NoHeader(Header):
    """Header of a request without fields; fields that a peer sends anyway are ignored."""


class AllFields(Header):
    """Header of a request that is passed on: its handler gets a dict of all fields, as the strings of the wire."""


# Work on a long response, in steps of at most a millisecond; between two of them, other requests are served.
Steps = Generator[None, None, Response | None]
Result = Response | None | Steps
Answer = Result | Awaitable[Result]
Handler = Callable[[Request[Any]], Answer]
# Takes those requests off the end of the list that must wait for another turn.
BatchHandler = Callable[[list[Request[Any]]], None]
# Returns the response to a request that its handler must not see, usually a `Refusal`; else None.
Check = Callable[[Request[Any]], Response | None]


# Called with a frame and its channel.  Returns what to serve of the frame, or None if the guard has answered it.
Guard = Callable[[Frame, Any], "Decoded | None"]
# Share of a class's requests to serve (0 to 1), and the reason for refusing the rest.
Verdict = tuple[float, str]
# Called for each class of a read with the read's wait in seconds and its number of requests.
Overload = Callable[[Traffic, float, int], Verdict]


class FramesChannel(Protocol):
    """The connection of frames that are served without a `Request` for each."""

    @property
    def id(self) -> int: ...

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def attributes(self) -> dict[str, Any]: ...  # what a server remembers of the peer

    charged: Any  # to what a server charges requests here, until another account signs one; None at first

    @property
    def is_trusted(self) -> bool: ...  # whether its peer is in this process

    @property
    def read_at(self) -> float: ...  # loop time of the last read

    def read_after(self, seconds: float, /) -> None: ...

    def refuse(self, request: Request[Any], error: Exception, /) -> None:
        """Respond to a decoded request that failed with `error`."""

    def serve_one(self, handle: Any, request: Request[Any], /) -> None:
        """Let the `Handler` serve a decoded request of this read, and send its response."""

    def answer_frames(
        self, request_code: int, count: int, frames: bytes, code: int, read_at: float, *, was_later: bool,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Send the responses, with `code`, to `count` requests that were read at `read_at`.

        Those that were served later (`was_later`) leave at the end of this turn of the loop, so that all of the turn
        are one write; with `at_once` they leave now, because no others follow.
        """


class GuardedChannel(FramesChannel, Protocol):
    """A connection behind a guard."""

    def proof_of(self, code: int, /) -> "Proof | None":
        """Return what requests of `code` prove to be served without the guard; None if it must see them."""


class FramesHandler(Protocol):
    """Handler of frames that a kernel serves."""

    def serve(self, frames: Frames, index: int, channel: FramesChannel, /) -> int:
        """Serve a read's `frames` from `index` on; return how many, 0 if the next must be decoded.

        It may put the work off until `settle`, which it then calls in the next turn of the loop at the latest.
        """

    def serve_proved(self, frames: Frames, index: int, channel: FramesChannel, proof: object, /) -> int:
        """Do the same behind a guard that has not seen the frames: a frame that does not prove `proof` is left."""

    @property
    def settle(self) -> Callable[[], None] | None:
        """Function that does now what was put off; handlers that put it off together have the same one.

        None: the handler puts nothing off.
        """


class CodeFrames:
    """`FramesHandler` of one request code; `serve_code` serves those of several codes and gets the code first.

    `prove_code` is `serve_proved` for several codes; None: the handler cannot prove signatures.
    """

    __slots__ = ("serve", "serve_proved", "settle")

    def __init__(
        self,
        code: int,
        serve_code: Callable[[int, Frames, int, FramesChannel], int],
        settle: Callable[[], None] | None = None,
        prove_code: Callable[[int, Frames, int, FramesChannel, object], int] | None = None,
    ) -> None:
        # No methods: each read would pay for one more call.
        self.serve = partial(serve_code, code)
        self.serve_proved = _no_proved if prove_code is None else partial(prove_code, code)
        self.settle = settle


def _no_proved(frames: Frames, index: int, channel: FramesChannel, proof: object) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Route:
    """Service of one request code.

    `handle` gets one request.  It returns a `Response`, the `Steps` of a long one, an awaitable of either, or None if
    it replies itself through ``request.channel.reply`` (or never, for a oneway code).  `batch`, if present, gets the
    consecutive requests of this code in one read, all of one channel, and replies itself.  `checks` are asked in order
    before either of them.  `frames`, if present, is asked before `batch`, unless the route has checks.  Behind a guard
    it serves only frames that the guard admitted, or that prove what the guard asks for.
    """

    code: RequestCode
    header: type[Header]
    handle: Handler | None
    resource: Resource
    action: Action
    traffic: Traffic = Traffic.ADMIN
    batch: BatchHandler | None = None
    checks: Sequence[Check] = ()
    frames: FramesHandler | None = None


_PREFIX_SIZES = (PREFIX_BYTES, LONG_PREFIX_BYTES)
_HOT_CLASSES = frozenset({Traffic.SEND, Traffic.PULL})
# Max frames behind a guard that are served as a whole.
_MAX_GUARDED = 256


class Entry:
    """Route with its decoder.  Its handler asks the route's checks first; without checks it is the route's own."""

    __slots__ = (
        "batch", "code", "decode", "fields", "frames", "handle", "header", "native", "prefix", "route",
        "traffic",
    )  # fmt: skip

    def __init__(self, route: Route) -> None:
        invariant((route.handle is None) != (route.batch is None), f"{route.code.name}: one of handle and batch")
        self.route = route
        self.code = int(route.code)
        self.header = route.header
        self.traffic = route.traffic
        self.handle = _checked(route.handle, route.checks) if route.handle and route.checks else route.handle
        self.batch = _checked_batch(route.batch, route.checks) if route.batch and route.checks else route.batch
        self.frames = None if route.checks else route.frames
        prefix = b'{"code":%d,"' % route.code
        size = next((size for size in _PREFIX_SIZES if prefix[size - 1 :].startswith((b'"', b","))), 0)
        self.prefix = prefix[:size]  # start of a JSON header; empty if it does not identify the code
        # What the fields become: the typed struct of the route, or all of them.
        self.fields: Any = dict[str, str] if route.header is AllFields else route.header
        request_type = Request[self.fields | None]  # type: ignore[name-defined] # a type made at run time
        self.decode: Callable[[bytes], Request[Any]] = msgspec.json.Decoder(request_type, strict=False).decode
        # Both in one, compiled; None for other classes, whose requests are too few for it.
        is_hot = route.traffic in _HOT_CLASSES and route.header is not AllFields
        self.native = header_decoder(self.code, route.header) if is_hot else None

    def request_of(self, frame: Frame) -> Request[Any] | None:
        """Return the request of a frame of this code; None unless its header is JSON in the usual form."""
        serialization, header, body = frame
        if serialization != JSON:
            return None
        try:
            request = self.decode(header)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        if request.code != self.code or request.flag & FLAG_RESPONSE or request.header is None:
            return None
        request.body = body
        return request


def _checked(handle: Handler, checks: Sequence[Check]) -> Handler:
    def checked(request: Request[Any]) -> Answer:
        for check in checks:
            refusal = check(request)
            if refusal is not None:
                return refusal
        return handle(request)

    return checked


def _checked_batch(batch: BatchHandler, checks: Sequence[Check]) -> BatchHandler:
    def checked(run: list[Request[Any]]) -> None:
        """Refuse requests, and serve those after them up to the next one to refuse."""
        refused = 0
        passed: list[Request[Any]] = []
        for request in run:
            refusal = next(filter(None, (check(request) for check in checks)), None)
            if refusal is None:
                passed.append(request)
            elif passed:
                break
            else:
                request.channel.reply(request, refusal)
                refused += 1
        if passed:
            try:
                batch(passed)
            finally:
                del run[refused + len(passed) :]

    return checked


class RouteTable:
    """All routes of one server or client.  Decodes frames into requests for them.

    `refusals` counts the requests that the server refuses.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        overload: Overload | None = None,
        guard: Guard | None = None,
        refusals: Refusals | None = None,
        latency: RpcLatency | None = None,
    ) -> None:
        self.latency = latency  # None: latencies are not measured
        self.refusals = Refusals() if refusals is None else refusals
        self.entries: dict[int, Entry] = {}
        # JSON headers of the usual clients begin with the code: the first bytes name the route,
        # and the header is decoded once, straight into its typed struct.
        self._by_prefix: dict[bytes, Entry] = {}
        self._by_short_code: dict[int, Entry] = {}
        # Called for every frame before any of it is decoded, unless `serve_proved` has served the frame.
        self.guard = guard
        self.overload = overload
        settles: dict[Callable[[], None], None] = {}
        for route in routes:
            invariant(route.code not in self.entries, f"{route.code.name} is routed twice")
            entry = self.entries[int(route.code)] = Entry(route)
            if entry.prefix:
                self._by_prefix[entry.prefix] = entry
            self._by_short_code[entry.code & 0xFFFF] = entry
            if entry.frames is not None and entry.frames.settle is not None:
                settles[entry.frames.settle] = None
        self._settles = tuple(settles)

    @property
    def routes(self) -> list[Route]:
        return [entry.route for entry in self.entries.values()]

    def behind(self, guard: Guard | None) -> "RouteTable":
        """Return a table of these routes that serves only what `guard`, if any, admits, or what proves that again."""
        return RouteTable(
            self.routes, overload=self.overload, guard=guard, refusals=self.refusals, latency=self.latency
        )

    def decode(self, frame: Frame) -> "Decoded":
        """Return a request with its route, or a response.

        Raises ProtocolError when the header is no header, or the frame has not passed the guard, and
        `UnroutableRequest` when the header cannot be read, or its code or its fields are not served.
        """
        if self.guard is not None:
            return _admitted(frame)
        entry = self.entry_of(frame)
        if entry is None:
            return self._decode_slowly(frame)
        if entry.native is not None:
            request = entry.native.request(*frame, None)
            if request is not None:
                return entry, request
        request = entry.request_of(frame)
        return self._decode_slowly(frame) if request is None else (entry, request)

    def serve_frames(self, frames: Frames, index: int, channel: FramesChannel) -> int:
        """Serve frames from `index` on as a whole, and return how many; 0 if they must be decoded.

        Before those, everything that was put off is done: requests of one connection keep their order.
        """
        entry = self._entry_at(frames, index)
        handler = None if entry is None else entry.frames
        if self.guard is not None and handler is not None:
            # What reads a frame again must find only frames whose bytes the guard has checked.
            frames, index = frames[index : index + _MAX_GUARDED], 0
            if not all(isinstance(frame, AdmittedFrame) for frame in frames):
                return 0
        if handler is None or handler.settle is None:
            self.settle()
            return 0 if handler is None else handler.serve(frames, index, channel)
        served = handler.serve(frames, index, channel)
        if not served:
            self.settle()
        return served

    def serve_proved(self, frames: Frames, index: int, channel: GuardedChannel) -> int:
        """Serve frames from `index` on that prove what the guard asks for; return how many.

        0 if the guard must see the next one.  Nothing but the proof has read these frames before.
        """
        entry = self._entry_at(frames, index)
        proof = None if entry is None else channel.proof_of(entry.code)
        if entry is None or entry.frames is None or proof is None:
            return 0
        if entry.frames.settle is None:
            self.settle()
        return entry.frames.serve_proved(frames, index, channel, proof)

    def settle(self) -> None:
        """Do what handlers of frames have put off."""
        for settle in self._settles:
            settle()

    def grouped(self, frames: Frames, start: int) -> list[Frame]:
        """Return `frames` with the batch requests after `start` grouped by handler.

        The requests of one handler keep their order, and no frame overtakes a frame without a batch handler.
        """
        groups: dict[BatchHandler, list[Frame]] = {}
        end, rest = start, frames[start:]
        for frame, entry in zip(rest, self.entries_of(rest), strict=True):
            if entry is None or entry.batch is None:
                break
            groups.setdefault(entry.batch, []).append(frame)
            end += 1
        return [*frames[:start], *chain.from_iterable(groups.values()), *frames[end:]]

    def differ(self, frames: Frames, index: int) -> bool:
        """Return whether the frame at `index` and the one after it begin like requests with different codes."""
        return start_of(frames, index) != start_of(frames, index + 1)

    def _entry_at(self, frames: Frames, index: int) -> Entry | None:
        """Return the entry for the frame at `index`, as far as its first bytes tell."""
        serialization, start = start_of(frames, index)
        if serialization == JSON:
            return self._by_prefix.get(start[:PREFIX_BYTES]) or self._by_prefix.get(start)
        return self._by_short_code.get(int.from_bytes(start, "big"))

    def entry_of(self, frame: Frame) -> Entry | None:
        """Return the entry for a frame, as far as its first bytes tell."""
        return self._entry_at([frame], 0)

    def entries_of(self, frames: Frames) -> list[Entry | None]:
        """Return the entry of each frame, as far as its first bytes tell.  Headers of one code begin alike."""
        known: dict[tuple[int, bytes], Entry | None] = {}
        entries: list[Entry | None] = []
        for index in range(len(frames)):
            start = start_of(frames, index)
            if start not in known:
                known[start] = self._entry_at(frames, index)
            entries.append(known[start])
        return entries

    def requests_of(self, frames: Frames, channel: FramesChannel, read_at: float) -> list[Request[Any]]:
        """Return the requests in `frames` of `channel`, which a compiled path has read; `read_at` is that of each.

        Raises InvariantError if one of them is a response.
        """
        requests = []
        for frame in frames:
            decoded = self.decode(frame)
            if not isinstance(decoded, tuple):
                raise InvariantError("a frame that was served as a request is a response")
            request = decoded[1]
            request.channel, request.read_at = channel, read_at
            requests.append(request)
        return requests

    def decode_run(self, entry: Entry, first: Frame, frames: Sequence[Frame], run: list[Request[Any]]) -> None:
        """Append the requests of `frames` to `run`, up to the first with another route.

        `run` holds the request of the frame `first`, whose route is `entry`; all get its channel.  An invalid frame
        ends the run; its error appears when it is decoded alone.
        """
        if self.guard is not None:
            _append_admitted(entry, frames, run)
            return
        serialization, channel = first[0], run[0].channel
        if entry.native is not None:
            frames = frames[entry.native.run(frames, 0, serialization, channel, run) :]
        try:
            for frame in frames:
                if frame[0] != serialization:
                    return
                request = entry.request_of(frame)
                if request is None:
                    decoded = self._decode_slowly(frame)
                    if isinstance(decoded, ReceivedResponse) or decoded[0] is not entry:
                        return
                    request = decoded[1]
                request.channel = channel
                run.append(request)
        except (ProtocolError, UnroutableRequest):
            return

    def _decode_slowly(self, frame: Frame) -> "Decoded":
        opened = open_frame(frame)
        return opened if isinstance(opened, ReceivedResponse) else self.routed(*opened)

    def routed(self, request: Request[Any], fields: dict[str, str]) -> tuple[Entry, Request[Any]]:
        """Return an opened `request` with its route and its header from `fields`.  Raises `UnroutableRequest`."""
        entry = self.entries.get(request.code)
        if entry is None:
            raise UnroutableRequest(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _unsupported(request.code))
        try:
            request.header = msgspec.convert(fields, entry.fields, strict=False)
        except msgspec.ValidationError as error:
            remark = f"header of {entry.route.code.name}: {error}"
            raise UnroutableRequest(request, ResponseCode.SYSTEM_ERROR, remark, Reason.INVALID_HEADER) from None
        return entry, request


Decoded = tuple[Entry, Request[Any]] | ReceivedResponse


class AdmittedFrame(tuple[int, bytes, bytes]):
    """Frame that a guard admitted, with the request that it decoded, so that exactly the checked request is served."""

    decoded: Decoded


def open_frame(frame: Frame) -> ReceivedResponse | tuple[Request[Any], dict[str, str]]:
    """Return a response, or a request whose header stays None, with its fields.

    Raises UnroutableRequest for a request whose header cannot be read, so that it alone is refused, and ProtocolError
    for a header that does not even say which request it is.
    """
    try:
        return _opened(frame)
    except ProtocolError as error:
        serialization, header, _ = frame
        address = (codec_json if serialization == JSON else codec_binary).address_of(header)
        if address is None:
            raise
        code, opaque, flag = address
        remark = f"the header cannot be read: {error}"
        if flag & FLAG_RESPONSE:
            return ReceivedResponse(code=ResponseCode.SYSTEM_ERROR, opaque=opaque, remark=remark)
        request: Request[Any] = Request(code=code, opaque=opaque, flag=flag, serialization=serialization)
        raise UnroutableRequest(request, ResponseCode.SYSTEM_ERROR, remark, Reason.INVALID_HEADER) from None


def _opened(frame: Frame) -> ReceivedResponse | tuple[Request[Any], dict[str, str]]:
    serialization, header, body = frame
    if serialization == JSON:
        envelope, ext_fields = codec_json.decode_header(header)
        language = None if envelope.language is None else str(envelope.language)
        code, flag = envelope.code, envelope.flag or 0
        opaque, version, remark = envelope.opaque or 0, envelope.version or 0, envelope.remark
    else:
        binary = codec_binary.decode_header(header)
        ext_fields, language = binary.ext_fields, str(binary.language)
        code, flag = binary.code, binary.flag
        opaque, version, remark = binary.opaque, binary.version, binary.remark
        if not flag & FLAG_RESPONSE:
            code = codec_binary.LONG_CODES.get(code, code)
    if flag & FLAG_RESPONSE:
        return ReceivedResponse(
            code=code, opaque=opaque, version=version, remark=remark, ext_fields=ext_fields, body=body
        )
    request: Request[Any] = Request(
        code=code, opaque=opaque, flag=flag, version=version, language=language, remark=remark, body=body,
        serialization=serialization,
    )  # fmt: skip
    return request, ext_fields


def _admitted(frame: Frame) -> Decoded:
    """Return the request that the guard decoded.  Raises ProtocolError for a frame that the guard has not admitted."""
    if not isinstance(frame, AdmittedFrame):
        raise ProtocolError("unguarded", "the frame has reached its route without passing access control")
    return frame.decoded


def _append_admitted(entry: Entry, frames: Sequence[Frame], run: list[Request[Any]]) -> None:
    """Append the requests that the guard decoded, up to the first with another route than `entry`."""
    for frame in frames:
        decoded = frame.decoded if isinstance(frame, AdmittedFrame) else None
        if decoded is None or isinstance(decoded, ReceivedResponse) or decoded[0] is not entry:
            return
        run.append(decoded[1])


class UnroutableRequest(RequestError):
    """A well-formed request without a handler; the error is the response to `request`."""

    def __init__(self, request: Request[Any], code: int, remark: str, reason: Reason | None = None) -> None:
        super().__init__(code, remark, reason)
        self.request = request


def _unsupported(code: int) -> str:
    try:
        name = f" ({RequestCode(code).name})"
    except ValueError:
        name = ""
    return f" request type {code}{name} not supported"
