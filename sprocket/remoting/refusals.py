"""Refusals: the one kind of response that says that a request was not carried out, and their counters.

A part that refuses a request raises an error of `sprocket.common.errors`, or returns a `Refusal`.  The connection turns
errors into refusals, and counts each refused request once, when it responds (`RemotingChannel.reply`).  Three things
are decided before a handler, in this order: load shedding, the guard of access control, and the `checks` of a route.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sprocket.common.errors import ProtocolError, RequestError, SprocketError
from sprocket.common.figures import Declared, Figure, FigureFamily
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Response
from sprocket.remoting.headers.base import Header

# Reason of a refusal that names none.
_REASONS: Final[dict[int, Reason]] = {
    ResponseCode.SYSTEM_BUSY: Reason.BUSY,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Reason.CODE_NOT_SUPPORTED,
    ResponseCode.SLAVE_NOT_AVAILABLE: Reason.SERVICE_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: Reason.MESSAGE_ILLEGAL,
    ResponseCode.SERVICE_NOT_AVAILABLE: Reason.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: Reason.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST: Reason.TOPIC_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND: Reason.NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Reason.SUBSCRIPTION,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: Reason.SUBSCRIPTION,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: Reason.SUBSCRIPTION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Reason.GROUP_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_EXIST: Reason.SUBSCRIPTION,
    ResponseCode.FILTER_DATA_NOT_LATEST: Reason.SUBSCRIPTION,
    ResponseCode.INVALID_PARAMETER: Reason.INVALID_PARAMETER,
    ResponseCode.CONSUMER_NOT_ONLINE: Reason.CLIENT_NOT_ONLINE,
    ResponseCode.CONSUME_MSG_TIMEOUT: Reason.CLIENT_NOT_ONLINE,
    ResponseCode.NO_MESSAGE: Reason.NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT: Reason.TOO_LATE,
    ResponseCode.ILLEGAL_OPERATION: Reason.ILLEGAL_OPERATION,
    ResponseCode.USER_NOT_EXIST: Reason.NOT_FOUND,
    ResponseCode.POLICY_NOT_EXIST: Reason.NOT_FOUND,
}
# Peers choose codes freely: all unknown ones are counted together.
_UNKNOWN: Final = "UNKNOWN"
_NAMES: Final = {int(code): code.name for code in RequestCode}
# Source of the name: `FrameDecoder`.
_LENGTH_KIND: Final = "frame_length"


class Refusal(Response):
    """Response to a request that was not carried out; `reason` is what it is counted under."""

    __slots__ = ("reason",)

    def __init__(
        self,
        code: int,
        remark: str | None = None,
        header: Header | Mapping[str, str] | None = None,
        *,
        reason: Reason | None = None,
    ) -> None:
        super().__init__(code, remark, header)
        self.reason = reason or _REASONS.get(code, Reason.OTHER)


def refusal_of(error: SprocketError) -> Refusal:
    """Return the response to a request that was refused with `error`."""
    if isinstance(error, RequestError):
        return Refusal(error.code, error.remark, error.fields, reason=error.refusal_reason)
    return Refusal(error.response_code, str(error), reason=error.refusal_reason)


class Refusals:
    """Refused requests of one server since its start, by reason and by request code."""

    def __init__(self) -> None:
        self.by_reason: Counter[Reason] = Counter()
        self._by_code: Counter[str] = Counter()
        self._total_before = 0  # at the last `grown`

    def count(self, reason: Reason, code: int, requests: int = 1) -> None:
        """Count `requests` of one request code, refused for one reason."""
        self.by_reason[reason] += requests
        self._by_code[_NAMES.get(code, _UNKNOWN)] += requests

    def count_closed(self, error: ProtocolError) -> None:
        """Count bytes that are no request and end their connection."""
        self.by_reason[Reason.FRAME_LENGTH if error.kind == _LENGTH_KIND else Reason.MALFORMED_FRAME] += 1

    def grown(self) -> str:
        """Return ``reason=count`` of all reasons that occurred, or the empty text if none did since the last call."""
        total = sum(self.by_reason.values())
        if total == self._total_before:
            return ""
        self._total_before = total
        return " ".join(f"{reason.name.lower()}={count}" for reason, count in self.by_reason.items())

    def figures(self) -> list[Declared]:
        """Return the figures: those of reasons and codes that occurred."""
        return [
            Figure(
                "requestsRefused",
                "refused requests and malformed frames since the start",
                lambda: sum(self.by_reason.values()),
            ),
            FigureFamily(
                "requestsRefused_<reason>",
                "refused requests since the start, for each [reason](#reasons-of-refusals) that occurred",
                lambda: {reason.name.lower(): count for reason, count in self.by_reason.items()},
            ),
            FigureFamily(
                "requestsRefusedOf_<code>",
                "refused requests since the start, for each request code that was refused",
                lambda: dict(self._by_code),
            ),
        ]
