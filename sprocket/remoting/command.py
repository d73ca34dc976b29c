"""Commands: what a frame means once its header is decoded.

Source: RocketMQ 5.3.3, `RemotingCommand`.  A `Request` is decoded straight from the wire: its
`header` is the typed struct of its code.  A `Response` is built by a handler.  `ReceivedResponse`
is what a caller gets.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec

from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.base import Header, Int

# What we claim to be: the ordinal of V5_3_3 in `MQVersion`.  Peers read it to choose features.
VERSION = 479
LANGUAGE = "PYTHON"

FLAG_RESPONSE = 0x1
FLAG_ONEWAY = 0x2

H_co = TypeVar("H_co", covariant=True)
Buffer = bytes | bytearray | memoryview


class Channel(Protocol):
    """The connection that a request came in on, as a handler sees it."""

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of the other end."""
        ...

    @property
    def id(self) -> int:
        """Unique within the process, never reused."""
        ...

    # A handler has no other way to write: so no request gets two answers, and a oneway request gets none.

    def reply(self, request: "Request[Any]", response: "Response") -> None:
        """Answer `request` with `response`, unless it is oneway or has its answer."""
        ...

    def refuse(self, request: "Request[Any]", error: Exception) -> None:
        """Answer `request` with what `error` says, as if its handler had raised it."""
        ...

    def answer(self, request: "Request[Any]", *frame: Buffer) -> None:
        """Answer `request` with an encoded frame, unless it is oneway or has its answer.  After close: nothing."""
        ...

    def answer_run(self, requests: Sequence["Request[Any]"], frames: bytes) -> None:
        """Answer `requests` with `frames`, which has one frame for each that `wants_answer`, in any order."""
        ...

    def notify(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a oneway request to the other end."""
        ...

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...


class Request(msgspec.Struct, Generic[H_co], kw_only=True, gc=False):
    """One request.  `header` has the type that the route of `code` names.

    `body`, `channel` and `serialization` are set by the connection after the header is decoded.  Their wire names are
    such that a header cannot hold them by accident; where one does on purpose, the first two are overwritten, and any
    `serialization` but that of JSON is no request of the usual form.
    `is_answered` is set by the channel with the answer; a header that holds its wire name is refused like one with
    `serialization`.
    The collector does not follow requests (`gc=False`): nothing that one refers to may refer back to it.
    """

    # In the order in which the usual clients write them: each is then looked for where it is.
    code: Int
    header: H_co = msgspec.field(name="extFields", default=None)  # type: ignore[assignment] # typed by the route
    flag: Int = 0
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0
    body: bytes = msgspec.field(name="#body", default=b"")
    channel: Any = msgspec.field(name="#channel", default=None)
    # What a gate left with it, for handlers that have to ask again; see `acl.gate`.
    access: Any = msgspec.field(name="#access", default=None)
    serialization: Annotated[int, msgspec.Meta(ge=0, le=0)] = msgspec.field(name="#serialization", default=0)
    is_answered: Annotated[int, msgspec.Meta(ge=0, le=0)] = msgspec.field(name="#answered", default=0)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def wants_answer(self) -> bool:
        """Whether an answer may be written: the request is not oneway, and has none yet."""
        return not (self.is_answered or self.flag & FLAG_ONEWAY)


class Response:
    """What a handler answers.  `body` may be several buffers; they are sent without being joined."""

    __slots__ = ("body", "code", "header", "remark")

    def __init__(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        header: Header | Mapping[str, str] | None = None,
        body: Buffer | Sequence[Buffer] = b"",
    ) -> None:
        self.code = code
        self.remark = remark
        self.header = header
        self.body = body

    def __repr__(self) -> str:
        return f"Response(code={self.code}, remark={self.remark!r}, header={self.header!r})"


class ReceivedResponse(msgspec.Struct, kw_only=True):
    """A response as its caller gets it: header fields are still the strings of the wire."""

    code: int
    opaque: int
    version: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = {}  # msgspec copies an empty default per instance
    body: bytes = b""

    def header(self, header_type: type[H_co]) -> H_co:
        """The header fields as `header_type`.  Raises msgspec.ValidationError when they do not fit."""
        return msgspec.convert(self.ext_fields, header_type, strict=False)
