"""One pop while it is served: what it has taken, and its response."""

from typing import Final

from broker.pop.pop_offsets import Taken
from sprocket.common.errors import StoreError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Buffer, Request
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.message.pop_extra_info import join_entries
from store.record.record import PendingMessage

_NUMBERS: Final = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "%d")
_TEXTS: Final = dict.fromkeys(("startOffsetInfo", "msgOffsetInfo"), "%b")
_ORDERED: Final = {"orderCountInfo": "%b"}


def template_of(code: ResponseCode, *, is_ordered: bool) -> ResponseTemplate:
    """Return the template of the responses with `code`."""
    remark = "FOUND" if code is ResponseCode.SUCCESS else "NO_MESSAGE_IN_QUEUE"
    return ResponseTemplate(code, _NUMBERS | _TEXTS | (_ORDERED if is_ordered else {}), remark=remark)


# By code and whether the pop is ordered.
_TEMPLATES: Final = {
    (code, is_ordered): template_of(code, is_ordered=is_ordered)
    for code in (ResponseCode.SUCCESS, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT)
    for is_ordered in (False, True)
}
# The responses that the compiled path gives.
FOUND: Final = _TEMPLATES[ResponseCode.SUCCESS, False]


class Popped:
    """What a pop has taken from the queues read so far."""

    __slots__ = (
        "buffers",
        "checkpoints",
        "count",
        "damage",
        "is_cut_short",
        "is_ordered",
        "message_offsets",
        "order_counts",
        "pop_time_ms",
        "request",
        "rest",
        "revive_queue_id",
        "size_bytes",
        "start_offsets",
        "taken",
    )

    def __init__(self, request: Request[PopMessageRequestHeader], pop_time_ms: int, revive_queue_id: int) -> None:
        self.request = request
        self.is_ordered = bool(request.header.order)
        self.pop_time_ms = pop_time_ms
        self.revive_queue_id = revive_queue_id
        self.rest = 0  # messages after those that were taken
        self.is_cut_short = False  # whether a filter stopped before the end of a queue
        self.count = 0
        self.buffers: list[Buffer] = []
        self.size_bytes = 0
        # Entries of the response's texts.
        self.start_offsets: list[str] = []
        self.message_offsets: list[str] = []
        self.order_counts: list[str] = []
        # Records to write before the response, and what each covers.
        self.checkpoints: list[PendingMessage] = []
        self.taken: list[Taken] = []
        self.damage: StoreError | None = None

    @property
    def room(self) -> int:
        """How many more messages the pop accepts."""
        return self.request.header.max_msg_nums - self.count

    def add(self, buffers: list[memoryview], size_bytes: int) -> None:
        """Add to the response's body."""
        self.buffers += buffers
        self.size_bytes += size_bytes

    def answer(self, code: int) -> None:
        """Send the response: SUCCESS with what was taken, or POLLING_FULL or POLLING_TIMEOUT."""
        request = self.request
        if not request.wants_answer:
            return
        values: tuple[bytes | int, ...] = (
            self.pop_time_ms, request.header.invisible_time, self.revive_queue_id, self.rest,
            join_entries(self.start_offsets).encode(), join_entries(self.message_offsets).encode(),
        )  # fmt: skip
        if self.is_ordered:
            values = (*values, join_entries(self.order_counts).encode())
        template = _TEMPLATES[ResponseCode(code), self.is_ordered]
        frame = template.frame(request.serialization, request.opaque, values, self.size_bytes)
        request.channel.answer(request, frame, *self.buffers, code=code)
