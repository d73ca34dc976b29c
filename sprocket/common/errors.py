"""Tree of errors.  Each class tells who is at fault and which response code a peer gets.

`ProtocolError`: the peer broke the wire contract; the connection is closed and counted.
`RequestError`: expected; becomes a response whose remark says what to do.
`StoreError`: the disk or its content; `DiskFailed` is latched and stops the process.
`ConfigError`: the operator's input; stops the start.  `InvariantError`: our own bug.
`ClientError`: what the asyncio client raises to an application.
"""

from collections.abc import Mapping
from typing import ClassVar

from sprocket.common.logs.line_format import escaped
from sprocket.common.refusal_reasons import Reason

# The wire's response codes by number: `sprocket.remoting.codes.ResponseCode` lies in a layer above this one.
_SYSTEM_ERROR = 1
_SYSTEM_BUSY = 2
_SERVICE_NOT_AVAILABLE = 14
_UNCONFIRMED = "no controller has confirmed this master lately, and another one may lead"


class SprocketError(Exception):
    """Root of every error that Sprocket raises on purpose."""

    response_code: ClassVar[int] = _SYSTEM_ERROR
    # Under which a request that is refused with this error is counted; None: under that of the response code.
    refusal_reason: Reason | None = None


class ProtocolError(SprocketError):
    """A peer sent bytes that are not the protocol; its connection is closed.

    `kind` is a short stable word for the counter of such errors (``frame_length``, ``json``, ...).  Raised by a
    handler about a body, it refuses the request alone.
    """

    refusal_reason = Reason.INVALID_BODY

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class RequestError(SprocketError):
    """A request that is refused: `code`, `remark` and the header `fields` go back to the peer as the response.

    `reason` is what the refusal is counted under; None: that of the class, or of the code.
    """

    def __init__(
        self, code: int, remark: str, reason: Reason | None = None, fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields
        if reason is not None:
            self.refusal_reason = reason


class StoreError(SprocketError):
    """The message store cannot carry out a request."""

    response_code = _SERVICE_NOT_AVAILABLE
    refusal_reason = Reason.STORE_UNAVAILABLE


class DiskFull(StoreError):
    """No space for a write.  Reads go on; writes are refused until space returns."""

    refusal_reason = Reason.DISK_FULL


class NoDescriptor(DiskFull):
    """No descriptor is left to open a file with.  Nothing is damaged: as with a full disk, it is tried again later."""

    refusal_reason = Reason.NO_DESCRIPTOR


class StoreBusy(StoreError):
    """Refused before anything was written, because too much waits already; the message says when to retry."""

    response_code = _SYSTEM_BUSY

    def __init__(self, message: str, reason: Reason = Reason.WAITING) -> None:
        super().__init__(message)
        self.refusal_reason = reason


class ReplicasNotEnough(StoreBusy):
    """Refused before anything was written, because fewer replicas are in sync than minInSyncReplicas."""

    response_code = _SYSTEM_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.REPLICAS_NOT_ENOUGH)


class NoLease(StoreError):
    """Refused, before anything was done, by a master that controllers may replace by now.

    Administration clients send the request again by these words, so nothing else may have them.
    """

    refusal_reason = Reason.NO_LEASE

    def __init__(self) -> None:
        super().__init__(f"{_UNCONFIRMED}: nothing was done, send again")


class LeaseEnded(StoreError):
    """Not acknowledged by a master that controllers may replace by now; what was appended or changed may be lost."""

    refusal_reason = Reason.NO_LEASE

    def __init__(self) -> None:
        super().__init__(f"{_UNCONFIRMED}: it may have been done, or may be lost; check before you send again")


class DiskFailed(StoreError):
    """A write or sync failed in a way that leaves the file's content unknown.  Latched: fail-stop."""

    refusal_reason = Reason.DISK_FAILED


class RestartNeeded(StoreError):
    """The store must be restarted at once, because its start does work that is due."""


class CorruptRecord(StoreError):
    """Bytes at a known place are not what was written there."""

    response_code = _SYSTEM_ERROR

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"physical offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class ConfigError(SprocketError):
    """An invalid configuration; the message has file, line, key and the allowed values."""


class ClientError(SprocketError):
    """An operation of the client failed; the message says why and what to do.

    A server's text in it is escaped, because applications print it; attributes such as `remark` have it as it came.
    """

    def __str__(self) -> str:
        return escaped(super().__str__())


class InvariantError(SprocketError):
    """A condition that our own code guarantees does not hold: a bug of Sprocket, never of its input."""

    refusal_reason = Reason.BUG
