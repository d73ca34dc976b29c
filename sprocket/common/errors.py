"""Tree of errors.  Each class tells who is at fault and which response code a peer gets.

`ProtocolError`: the peer broke the wire contract; the connection is closed and counted.
`RequestError`: expected; becomes a response whose remark says what to do.
`StoreError`: the disk or its content; `DiskFailed` is latched and stops the process.
`ConfigError`: the operator's input; stops the start.  `InvariantError`: our own bug.
`ClientError`: what the asyncio client raises to an application.
"""

from typing import ClassVar

# The wire's response codes by number: `sprocket.remoting.codes.ResponseCode` lies in a layer above this one.
_SYSTEM_ERROR = 1
_SYSTEM_BUSY = 2
_SERVICE_NOT_AVAILABLE = 14


class SprocketError(Exception):
    """Root of every error that Sprocket raises on purpose."""

    response_code: ClassVar[int] = _SYSTEM_ERROR


class ProtocolError(SprocketError):
    """A peer sent bytes that are not the protocol; its connection is closed.

    `kind` is a short stable word for the counter of such errors (``frame_length``, ``json``, ...).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class RequestError(SprocketError):
    """A request that is refused: `code` and `remark` go back to the peer as the response."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class StoreError(SprocketError):
    """The message store cannot carry out a request."""

    response_code = _SERVICE_NOT_AVAILABLE


class DiskFull(StoreError):
    """No space for a write.  Reads go on; writes are refused until space returns."""


class StoreBusy(StoreError):
    """Refused before anything was written, because too much waits already; the message says when to retry."""

    response_code = _SYSTEM_BUSY


class ReplicasNotEnough(StoreBusy):
    """Refused before anything was written, because fewer replicas are in sync than minInSyncReplicas."""

    response_code = _SYSTEM_ERROR


class DiskFailed(StoreError):
    """A write or sync failed in a way that leaves the file's content unknown.  Latched: fail-stop."""


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
    """An operation of the client failed; the message says why and what to do."""


class InvariantError(SprocketError):
    """A condition that our own code guarantees does not hold: a bug of Sprocket, never of its input."""
