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

# The version that we announce: the ordinal of V5_5_1 in `MQVersion`.  RocketMQ chooses features by it, the newest one
# since V5_3_1; peers that do not know the number take it for HIGHER_VERSION.
VERSION = 515
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

    @property
    def id(self) -> int:
        """Unique within the process, never reused."""

    # A handler has no other way to write.  So no request gets two responses, and a oneway request gets none.

    def reply(self, request: "Request[Any]", response: "Response") -> None:
        """Answer `request` with `response`, unless it is oneway or already answered."""

    def refuse(self, request: "Request[Any]", error: Exception) -> None:
        """Answer `request` with `error`, as if its handler had raised it."""

    def answer(self, request: "Request[Any]", *frame: Buffer, code: int = 0) -> None:
        """Answer `request` with an encoded frame whose response code is `code`.

        Does nothing if it is oneway or already answered, or if the channel is closed.
        """

    def answer_run(self, requests: Sequence["Request[Any]"], frames: bytes, code: int = 0) -> None:
        """Answer `requests`, all of one code and one read, with `frames`.

        They are one frame with the response code `code` for each request that `wants_answer`, in any order.
        """

    def notify(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a oneway request to the other end."""

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...


class Request(msgspec.Struct, Generic[H_co], kw_only=True, gc=False):
    """One request.  `header` has the type that the route of `code` names.

    The connection sets `body`, `channel` and `serialization` after it has decoded the header.  A header cannot hold
    their wire names by accident.  If it holds them on purpose, the first two are overwritten, and the general decoder
    gets a header with another `serialization` than JSON.
    The channel sets `is_answered` with the response; a header that holds its wire name is treated like one with
    `serialization`.
    The garbage collector does not follow requests (`gc=False`), so no object of a request may refer back to it.
    """

    # In the order in which common clients write them, which is the fastest order to decode.
    code: Int
    header: H_co = msgspec.field(name="extFields", default=None)  # type: ignore[assignment] # typed by the route
    flag: Int = 0
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0
    body: bytes = msgspec.field(name="#body", default=b"")
    channel: Any = msgspec.field(name="#channel", default=None)
    # The gate's decision, for handlers that must ask again; see `acl.gate`.
    access: Any = msgspec.field(name="#access", default=None)
    serialization: Annotated[int, msgspec.Meta(ge=0, le=0)] = msgspec.field(name="#serialization", default=0)
    is_answered: Annotated[int, msgspec.Meta(ge=0, le=0)] = msgspec.field(name="#answered", default=0)
    # Loop time of its read, if it was not answered in that turn and latencies are measured; else 0.
    read_at: Annotated[float, msgspec.Meta(ge=0, le=0)] = msgspec.field(name="#readAt", default=0.0)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def wants_answer(self) -> bool:
        """Whether a response may be written: the request is not oneway and not answered yet."""
        return not (self.is_answered or self.flag & FLAG_ONEWAY)


class Response:
    """Response of a handler.  `body` may be several buffers, which are sent without joining them."""

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
    """Response as its caller gets it; the header fields are still the strings of the wire.

    The connection sets `body` after it has decoded the header, in which its wire name means nothing.
    """

    # In the order in which common servers write them, which is the fastest order to decode.
    code: Int
    ext_fields: dict[str, str] = msgspec.field(name="extFields", default_factory=dict)
    flag: Int = FLAG_RESPONSE
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0
    body: bytes = msgspec.field(name="#body", default=b"")

    def header(self, header_type: type[H_co]) -> H_co:
        """Return the header fields as `header_type`.  Raises msgspec.ValidationError when they do not fit."""
        return msgspec.convert(self.ext_fields, header_type, strict=False)
