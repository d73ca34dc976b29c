"""Headers of the pulls of one queue: all that does not change from pull to pull is encoded once."""

import struct
from typing import Final

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import NotEncodable, request_prefix
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.request_format import request_format

PULL: Final = int(RequestCode.PULL_MESSAGE)
# The values that vary, in the order of the header's fields.
_VARYING: Final = ("queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis")


class PullHeader:
    """Encoder of pulls like one of them; the result is that of `encode_request`."""

    __slots__ = ("_format",)

    def __init__(self, header: PullMessageRequestHeader) -> None:
        self._format = request_format(PULL, to_ext_fields(header), dict.fromkeys(_VARYING, b'"%d"'))

    def frame(
        self, opaque: int, queue_offset: int, count: int, sys_flag: int, commit_offset: int, suspend_ms: int
    ) -> bytes:
        """Return the whole request, which has no body.  Raises NotEncodable."""
        try:
            header = self._format % (queue_offset, count, sys_flag, commit_offset, suspend_ms, opaque)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise NotEncodable(f"a pull cannot be encoded: {type(error).__name__}: {error}") from None
        return request_prefix(JSON, len(header), 0) + header
